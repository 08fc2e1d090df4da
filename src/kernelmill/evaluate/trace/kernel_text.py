"""A kernel as text, with the values of the names that it uses: only what Triton's compiler would resolve.

Those are constants marked as `tl.constexpr`, types, other kernels, and what is Triton's own. A kernel that uses
anything else (numpy, a list, a table) does not compile, and it has no text here either: it fails in a replay
with a NameError, as it would fail on a GPU.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import math
import operator
import os
import sys
import textwrap
import types
from collections.abc import Iterator
from typing import Any

import torch
import triton
import triton.language as tl
from triton.runtime import interpreter as stock
from triton.runtime import jit
from triton.runtime.jit import ConstexprFunction, JITFunction

from kernelmill.base.python_text import parse_module
from kernelmill.evaluate.kernel_source import key_of, source_lines
from kernelmill.evaluate.trace.kernel_language import (
    belongs,
    is_language,
    is_usable,
    leads_out,
    module_part,
    trouble_with,
)
from kernelmill.evaluate.trace.steps import Unrecordable

_BUILTINS = (
    "abs", "bool", "divmod", "float", "int", "len", "list", "max", "min", "print",
    "range", "sum", "tuple", "zip", "enumerate", "reversed", "pow", "round", "ValueError",
    "AssertionError", "TypeError", "RuntimeError",
)  # fmt: skip
_FOREIGN = object()
_DECORATOR = ("do_not_specialize", "do_not_specialize_on_alignment", "debug", "noinline")


def text_of(kernel: Any, kernels: dict[str, dict[str, Any]]) -> str:
    """Add a kernel, and the kernels that it calls, to `kernels`. Returns its key there.

    So for a function that the compiler evaluates: a plain one, or a `constexpr_function`.
    """
    if getattr(kernel, "is_gluon", bool)():
        raise Unrecordable("a kernel written in Gluon")
    plain = isinstance(kernel, types.FunctionType)
    evaluated = plain or isinstance(kernel, ConstexprFunction)
    function = kernel if plain else kernel.fn
    if getattr(getattr(kernel, "rewriter", None), "fn", function) is not function:
        raise Unrecordable(f"the function of the kernel {function.__qualname__} was exchanged")
    key = key_of(function)
    if key in kernels:
        return key
    text, line = _text_and_line(function)
    uses: dict[str, Any] = {}
    kernels[key] = {
        "kind": "function" if plain else "constexpr_function" if evaluated else "kernel",
        "name": function.__name__,
        "qualname": function.__qualname__,
        "text": text,
        "line": line,
        "module": function.__module__,
        "uses": uses,
        "unresolved": [],
        "options": {} if evaluated else _options(kernel),
    }
    free = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=False))
    definition = parse_module(text).body[0]
    assert isinstance(definition, ast.FunctionDef)
    names = _names(definition)
    for name in sorted(names):
        if name in free:
            value = free[name].cell_contents
        elif name in function.__globals__:
            value = function.__globals__[name]
        else:
            continue
        if function.__globals__.get("__annotations__", {}).get(name) in (
            tl.constexpr,
            "tl.constexpr",
            "constexpr",
        ):
            value = tl.constexpr(value)
        packed = _module(value) or (packed_value if evaluated else packed_constant)(value, kernels)
        if packed is _FOREIGN and evaluated and isinstance(value, types.FunctionType):
            packed = {"kernel": text_of(value, kernels)}
        if packed is _FOREIGN and isinstance(value, types.ModuleType):
            packed = _packed_module(value, _attributes_of(name, definition), kernels)
        if packed is _FOREIGN:
            kernels[key]["unresolved"].append(name)
        else:
            uses[name] = packed
    return key


def _names(*nodes: ast.AST) -> set[str]:
    return {node.id for root in nodes for node in ast.walk(root) if isinstance(node, ast.Name)}


def _attributes_of(name: str, definition: ast.FunctionDef) -> list[list[str]]:
    """What the kernel takes from a name, as lists of attributes: `[["math", "exp"]]` for `name.math.exp(x)`."""
    found = []
    for node in ast.walk(definition):
        path: list[str] = []
        while isinstance(node, ast.Attribute):
            path.insert(0, node.attr)
            node = node.value
        if path and isinstance(node, ast.Name) and node.id == name:
            found.append(path)
    return found


def _packed_module(
    module: types.ModuleType, paths: list[list[str]], kernels: dict[str, dict[str, Any]]
) -> Any:
    """A module that is not Triton's, with what a kernel takes from it: the compiler reads attributes of any module."""
    inside: dict[str, Any] = {}
    for first in {path[0] for path in paths}:
        value = getattr(module, first, _FOREIGN)
        packed = _FOREIGN if value is _FOREIGN else packed_value(value, kernels)
        if packed is _FOREIGN and isinstance(value, types.ModuleType):
            packed = _packed_module(
                value, [path[1:] for path in paths if path[0] == first and path[1:]], kernels
            )
        if packed is not _FOREIGN:
            inside[first] = packed
    return {"names": {"of": module.__name__, "has": inside}}


def _text_and_line(function: Any) -> tuple[str, int]:
    """The definition without its decorators, and its first line in the candidate's source."""
    lines, first = source_lines(function)
    try:
        definition = parse_module(textwrap.dedent("".join(lines))).body[0]
    except (SyntaxError, IndexError) as error:
        raise Unrecordable(f"the text of the kernel {function.__qualname__} is not known") from error
    if not isinstance(definition, ast.FunctionDef):
        raise Unrecordable(f"{function.__qualname__} is no function")
    start = definition.lineno - 1
    text = textwrap.dedent("".join(lines[start : definition.end_lineno]))
    return _with_defaults(text, function), first + start


def _with_defaults(text: str, function: Any) -> str:
    """The text with default values instead of the expressions that Python evaluated when it defined the function."""
    [definition] = parse_module(text).body
    assert isinstance(definition, ast.FunctionDef)
    arguments, lines = definition.args, text.splitlines(keepends=True)
    by_name = function.__kwdefaults__ or {}
    pairs = list(zip(arguments.defaults, function.__defaults__ or (), strict=False))
    pairs += [
        (node, by_name[one.arg])
        for one, node in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if node is not None and one.arg in by_name
    ]
    for node, value in sorted(pairs, key=lambda pair: (pair[0].lineno, pair[0].col_offset), reverse=True):
        if (
            isinstance(node, ast.Constant)
            or type(value) not in (bool, int, float, str)
            or node.lineno != node.end_lineno
        ):
            continue
        literal = repr(value) if not isinstance(value, float) or math.isfinite(value) else f"float('{value}')"
        line = lines[node.lineno - 1].encode()
        lines[node.lineno - 1] = (
            line[: node.col_offset] + literal.encode() + line[node.end_col_offset :]
        ).decode()
    return "".join(lines)


def packed_constant(value: Any, kernels: dict[str, dict[str, Any]]) -> Any:
    """A value that the compiler resolves, as data; `_FOREIGN` for any other."""
    value = getattr(
        value, "interpreted", value
    )  # a function in a tuple of arguments, as Triton specialises it
    if isinstance(value, (stock.InterpretedFunction, JITFunction, ConstexprFunction)):
        module = value.fn.__module__
        if module == "triton" or module.startswith("triton."):
            return {"attribute": [module, value.fn.__qualname__]}
        return {"kernel": text_of(value, kernels)}
    if isinstance(value, tl.constexpr):
        inner = packed_value(value.value, kernels)
        if inner is _FOREIGN and isinstance(value.value, types.FunctionType):
            inner = {"kernel": text_of(value.value, kernels)}
        return _FOREIGN if inner is _FOREIGN else {"constexpr": inner}
    if isinstance(value, tl.dtype):
        return packed_value(value, kernels)
    module = getattr(value, "__module__", None) or ""
    if (module == "triton" or module.startswith("triton.")) and hasattr(value, "__name__"):
        qualified = getattr(value, "__qualname__", value.__name__)
        name = value.__name__ if "<locals>" in qualified else qualified
        if _found(module, name) is value:
            return {"attribute": [module, name]}
    return _named(value)


def _module(value: Any) -> Any:
    """A module that a kernel may name. No other value holds one."""
    if not isinstance(value, types.ModuleType):
        return None
    name = value.__name__
    ours = value is math or (
        (name == "triton" or name.startswith("triton.")) and sys.modules.get(name) is value
    )
    return {"module": name} if ours else None


def _found(module: str, name: str) -> Any:
    """What a loaded module has under this name; nothing if there is none."""
    try:
        return operator.attrgetter(name)(sys.modules[module])
    except (KeyError, AttributeError):
        return None


def _named(value: Any) -> Any:
    """A function of the language under the name that it has there: the interpreter replaces some of them."""
    if callable(value):
        for module in [name for name in sys.modules if is_language(name)]:
            for name, other in vars(sys.modules[module]).items():
                if other is value and is_usable(module, name):
                    return {"attribute": [module, name]}
    return _FOREIGN


def packed_value(value: Any, kernels: dict[str, dict[str, Any]]) -> Any:
    """A constant argument as data; `_FOREIGN` if it cannot be."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return {"float": float.hex(value)}
    if isinstance(value, tl.dtype):
        return {"tl": str(value.name)}
    if isinstance(value, torch.dtype):
        return {"torch": str(value).removeprefix("torch.")}
    if isinstance(value, tuple) and type(value) in (tuple, tl.core.tuple):
        items = [packed_value(item, kernels) for item in value]
        return _FOREIGN if any(item is _FOREIGN for item in items) else {"tuple": items}
    return packed_constant(value, kernels)


def _options(kernel: Any) -> dict[str, Any]:
    """What the decorator was given, as far as it matters to a launch."""
    given = kernel.kwargs if isinstance(kernel, stock.InterpretedFunction) else vars(kernel)
    found = {name: given.get(name) for name in _DECORATOR}
    plain = {
        name: list(value) if isinstance(value, (list, tuple)) else value for name, value in found.items()
    }
    return {name: value for name, value in plain.items() if value}


def is_foreign(packed: Any) -> bool:
    return packed is _FOREIGN


_BY_NAME = {dtype.name: dtype for dtype in (
    tl.int1, tl.int8, tl.int16, tl.int32, tl.int64, tl.uint8, tl.uint16, tl.uint32, tl.uint64, tl.float16, tl.bfloat16,
    tl.float32, tl.float64, tl.float8e4nv, tl.float8e5, tl.float8e4b15, tl.float8e4b8, tl.float8e5b16,
)}  # fmt: skip


class NotTheLanguage(Exception):
    """A kernel uses what no compiler would resolve."""


class Kernels:
    """The kernels of a trace, made again from their text in this process."""

    def __init__(self, texts: dict[str, dict[str, Any]], folder: str) -> None:
        self._texts, self._folder = texts, folder
        self._made: dict[str, Any] = {}

    def __getitem__(self, key: str) -> Any:
        if key not in self._made:
            self._make(key)
        return self._made[key]

    def _make(self, key: str) -> None:
        entry = self._texts[key]
        file = os.path.join(self._folder, f"kernel_{len(self._made)}.py")
        with open(file, "w", encoding="utf-8") as stream:
            stream.write(entry["text"])
        own = {name: getattr(builtins, name) for name in _BUILTINS} | {
            "getattr": _getattr,
            "hasattr": _hasattr,
            "type": _type,
            "isinstance": _isinstance,
            "str": _str,
            "repr": _str,
        }
        namespace: dict[str, Any] = {"__builtins__": own, "__name__": f"kernel_{len(self._made)}"}
        self._made[key] = None  # while it is made: no kernel can call itself
        for name, packed in entry["uses"].items():
            namespace[name] = self._use(packed)
        [definition] = parse_module(entry["text"]).body
        if not isinstance(definition, ast.FunctionDef) or definition.decorator_list:
            raise NotTheLanguage(f"{key} is no plain function")
        if foreign := trouble_with(definition, namespace):
            raise NotTheLanguage(f"the kernel {key} uses {foreign}, which is not Triton's language")
        exec(compile(entry["text"], file, "exec", dont_inherit=True), namespace)
        function = namespace[entry["name"]]
        function.__qualname__ = key
        if entry["kind"] == "kernel":
            function = triton.jit(function, **entry["options"])
        elif entry["kind"] == "constexpr_function":
            function = triton.constexpr_function(_without_tensors(function) if _interprets() else function)
        self._made[key] = function

    def _use(self, packed: Any) -> Any:
        """What a name of a kernel's stands for: a module, or a constant."""
        if isinstance(packed, dict) and "module" in packed:
            name = packed["module"]
            if name not in ("math", "triton") and not is_language(name):
                raise NotTheLanguage(f"a kernel uses {name}, which is not Triton's language")
            return importlib.import_module(name)
        if isinstance(packed, dict) and "names" in packed:
            inner = packed["names"]
            has = {name: self._use(value) for name, value in inner["has"].items()}
            return module_part(str(inner["of"]), has)
        return self.value(packed)

    def value(self, packed: Any) -> Any:
        """A constant from its packed form."""
        if not isinstance(packed, dict):
            return packed
        [(kind, inner)] = packed.items()
        if kind == "float":
            return float.fromhex(inner)
        if kind == "torch":
            return getattr(torch, inner)
        if kind == "tl":
            return _BY_NAME[inner]
        if kind == "tuple":
            return tuple(self.value(item) for item in inner)
        if kind == "constexpr":
            return tl.constexpr(self.value(inner))
        if kind == "kernel":
            return self[inner]
        if kind == "attribute" and (is_usable(*inner) or is_language(inner[0])):
            found = operator.attrgetter(inner[1])(importlib.import_module(inner[0]))
            its_own = belongs(found) and not isinstance(found, types.ModuleType)
            if its_own and (is_usable(*inner) or isinstance(found, _FUNCTIONS)):
                return found
        raise NotTheLanguage(f"a kernel uses {inner}, which is not Triton's language")


def _getattr(owner: Any, name: Any, *default: Any) -> Any:
    name = getattr(name, "value", name)
    if type(name) is not str or not isinstance(owner, _VALUES) or leads_out(name):
        raise NotTheLanguage(f"a kernel uses {name}, which is not Triton's language")
    return getattr(owner, name, *default)


def _hasattr(owner: Any, name: Any) -> bool:
    missing = object()
    return _getattr(owner, name, missing) is not missing


def _type(value: Any) -> Any:
    if _is_a_number(value):
        raise NotTheLanguage("a kernel asks for the type of a number, which depends on its value")
    return type(value)


def _isinstance(value: Any, kinds: Any) -> bool:
    if _is_a_number(value) and kinds is not tl.tensor:
        raise NotTheLanguage("a kernel asks for the type of a number, which depends on its value")
    kinds = kinds if isinstance(kinds, tuple) else (kinds,)
    return isinstance(value, kinds) or (isinstance(value, tuple) and tl.core.tuple in kinds)


def _is_a_number(value: Any) -> bool:
    """Whether this is one at run time: compiled, it is a constant where it is 1."""
    return isinstance(value, tl.tensor) and not value.type.is_block() and not value.type.is_ptr()


def _str(value: Any) -> str:
    """Only of what has one of its own: a text, a number, a type."""
    value = getattr(value, "value", value)
    if not isinstance(value, (str, int, float, tl.dtype)):
        raise NotTheLanguage("a kernel makes a text of a value")
    return str(value)


def _interprets() -> bool:
    return bool(jit.knobs.runtime.interpret)


def _without_tensors(function: Any) -> Any:
    """A function that the compiler evaluates. It knows no numbers of tensors then, so it gets none."""

    @functools.wraps(function)
    def evaluated(*args: Any, **kwargs: Any) -> Any:
        if any(isinstance(one, tl.tensor) for one in _flat([*args, *kwargs.values()])):
            raise NotTheLanguage(f"{function.__name__}, which the compiler evaluates, is given a tensor")
        return function(*args, **kwargs)

    return evaluated


def _flat(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (list, tuple, tl.core.tuple)):
            yield from _flat(value)
        else:
            yield value


_FUNCTIONS = (stock.InterpretedFunction, JITFunction, ConstexprFunction)
_VALUES = (tl.tensor, tl.dtype, tl.constexpr, tl.core.tuple, tuple, int, float, str)
