"""A kernel as text, with the values of the names that it uses: only what Triton's compiler would resolve.

Those are constants marked as `tl.constexpr`, types, other kernels, and what is Triton's own. A kernel that uses
anything else (numpy, a list, a table) does not compile, and it has no text here either: it fails in a replay
with a NameError, as it would fail on a GPU.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import math
import operator
import os
import textwrap
import types
from typing import Any

import triton
import triton.language as tl
from triton.runtime import interpreter as stock

from kernelmill.base.python_text import parse_module
from kernelmill.evaluate.interpreter.rewriting import source_lines
from kernelmill.evaluate.trace.steps import Unrecordable

_BUILTINS = (
    "abs", "bool", "divmod", "float", "getattr", "hasattr", "int", "isinstance", "len", "list", "max", "min", "print",
    "range", "repr", "str", "sum", "tuple", "type", "zip", "enumerate", "reversed", "pow", "round", "ValueError",
    "AssertionError", "TypeError", "RuntimeError",
)  # fmt: skip
_FOREIGN = object()


def text_of(kernel: Any, kernels: dict[str, dict[str, Any]]) -> str:
    """Add a kernel, and the kernels that it calls, to `kernels`. Returns its key there."""
    function = kernel.fn
    key = f"{function.__qualname__}@{function.__code__.co_firstlineno}#{id(function):x}"
    if key in kernels:
        return key
    lines, _ = source_lines(function)
    try:
        definition = parse_module(textwrap.dedent("".join(lines))).body[0]
    except SyntaxError as error:
        raise Unrecordable(f"the text of the kernel {function.__qualname__} is not known") from error
    if not isinstance(definition, ast.FunctionDef):
        raise Unrecordable(f"{function.__qualname__} is no function")
    definition.decorator_list = []
    uses: dict[str, Any] = {}
    kernels[key] = {
        "name": function.__name__,
        "text": ast.unparse(definition),
        "uses": uses,
        "unresolved": [],
        "options": {name: value for name, value in kernel.kwargs.items() if _is_plain(value)},
    }
    free = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=False))
    names = {node.id for node in ast.walk(definition) if isinstance(node, ast.Name)}
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
        packed = packed_constant(value, kernels)
        if packed is _FOREIGN:
            kernels[key]["unresolved"].append(name)
        else:
            uses[name] = packed
    return key


def packed_constant(value: Any, kernels: dict[str, dict[str, Any]]) -> Any:
    """A value that the compiler resolves, as data; `_FOREIGN` for any other."""
    value = getattr(
        value, "interpreted", value
    )  # a function in a tuple of arguments, as Triton specialises it
    if isinstance(value, stock.InterpretedFunction):
        module = value.fn.__module__
        if module == "triton" or module.startswith("triton."):
            return {"attribute": [module, value.fn.__qualname__]}
        return {"kernel": text_of(value, kernels)}
    if isinstance(value, tl.constexpr):
        inner = packed_value(value.value, kernels)
        return _FOREIGN if inner is _FOREIGN else {"constexpr": inner}
    if isinstance(value, tl.dtype):
        return packed_value(value, kernels)
    if isinstance(value, types.ModuleType):
        name = value.__name__
        if name == "triton" or name.startswith("triton."):
            return {"module": name}
        return {"module": "math"} if value is math else _FOREIGN
    module = getattr(value, "__module__", None) or ""
    if (module == "triton" or module.startswith("triton.")) and hasattr(value, "__name__"):
        qualified = getattr(value, "__qualname__", value.__name__)
        name = value.__name__ if "<locals>" in qualified else qualified
        return {"attribute": [module, name]}
    return _FOREIGN


def packed_value(value: Any, kernels: dict[str, dict[str, Any]]) -> Any:
    """A constant argument as data; `_FOREIGN` if it cannot be."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, tl.dtype):
        return {"tl": str(value.name)}
    if isinstance(value, tuple) and type(value) in (tuple, tl.core.tuple):
        items = [packed_value(item, kernels) for item in value]
        return _FOREIGN if any(item is _FOREIGN for item in items) else {"tuple": items}
    return packed_constant(value, kernels)


def is_foreign(packed: Any) -> bool:
    return packed is _FOREIGN


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


_BY_NAME = {dtype.name: dtype for dtype in (
    tl.int1, tl.int8, tl.int16, tl.int32, tl.int64, tl.uint8, tl.uint16, tl.uint32, tl.uint64, tl.float16, tl.bfloat16,
    tl.float32, tl.float64, tl.float8e4nv, tl.float8e5, tl.float8e4b15, tl.float8e4b8, tl.float8e5b16,
)}  # fmt: skip


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
        namespace: dict[str, Any] = {
            "__builtins__": {name: getattr(builtins, name) for name in _BUILTINS},
            "__name__": f"kernel_{len(self._made)}",
        }
        exec(compile(entry["text"], file, "exec"), namespace)
        kernel = triton.jit(namespace[entry["name"]], **entry.get("options", {}))
        self._made[key] = kernel  # before its names: a kernel may call itself
        namespace[entry["name"]] = kernel
        for name, packed in entry["uses"].items():
            namespace[name] = self.value(packed)

    def value(self, packed: Any) -> Any:
        """A constant from its packed form."""
        if not isinstance(packed, dict):
            return packed
        [(kind, inner)] = packed.items()
        if kind == "float":
            return float.fromhex(inner)
        if kind == "tl":
            return _BY_NAME[inner]
        if kind == "tuple":
            return tuple(self.value(item) for item in inner)
        if kind == "constexpr":
            return tl.constexpr(self.value(inner))
        if kind == "kernel":
            return self[inner]
        if kind == "module" and (inner == "math" or inner.partition(".")[0] == "triton"):
            return importlib.import_module(inner)
        if kind == "attribute" and inner[0].partition(".")[0] == "triton":
            return operator.attrgetter(inner[1])(importlib.import_module(inner[0]))
        raise ValueError(f"a constant of kind {kind!r}")
