"""Check what a self-contained file (one under level_*) may contain. Nothing is run.

A child computes with torch and a few harmless modules. Everything through which Python code reaches other
code is rejected: other files, the original, the prover, frames, torch internals. Two tables define this:
`_ALLOWED` is what a file may use, `_REJECTED` what it may not. Modules are recognised by name, so a module may not be
passed on under another name.

Code that gets past these checks and changes torch or the prover is detected at run time (`torch_calls.snapshot`).
"""

from __future__ import annotations

import ast
import collections
import collections.abc
import copy
import dataclasses
import enum
import functools
import itertools
import math
import numbers
import typing
from collections.abc import Iterator

from kernelmill.decompose.prove.rules.syntax import (
    at_line,
    class_named,
    dotted,
    parameters,
    parse,
    root_name,
    shown,
)
from kernelmill.problems.similarity.normal_form import normal_form

_ANY = "any object"
_TORCH = """
    torch torch.amp torch.autograd torch.cuda.amp torch.distributions torch.fft torch.functional torch.linalg torch.nested torch.nn
    torch.nn.attention torch.nn.functional torch.nn.init torch.nn.modules torch.nn.modules.utils torch.nn.parameter
    torch.nn.utils.parametrizations torch.nn.utils.rnn torch.ops.aten torch.sparse torch.special torch.types torch.utils.checkpoint
"""
_STANDARD = (
    collections, collections.abc, copy, dataclasses, enum, functools, itertools, math, numbers, typing,
)  # fmt: skip
_ALLOWED: dict[str, set[str] | None] = {
    **dict.fromkeys(_TORCH.split()),
    "torch.cuda": {"is_available"},
    "torch.func": {
        "functional_call", "grad", "hessian", "jacfwd", "jacrev", "jvp", "stack_module_state", "vjp", "vmap",
    },
    "torch.jit": {"export", "ignore", "script", "script_if_tracing", "unused", "Final"},
    "torch.nn.utils": {"spectral_norm", "weight_norm"},
    "torch.ops": set(),
    "torch.utils": set(),
    "__future__": {"annotations"},
    **{one.__name__: set(getattr(one, "__all__", [n for n in vars(one) if n[0] != "_"])) for one in _STANDARD},
}  # fmt: skip
"""The modules that a file may use, and the names in each: None for all public ones of torch that are not
rejected. A module that is listed may be reached through the one above it."""
_UNDERSCORED = {
    "_assert", "_weight_norm", "_pair", "_single", "_triple", "_quadruple", "_ntuple",
    "__init__", "__name__", "__class__", "__version__", "__file__",
}  # fmt: skip
"""Names that a file may use although they start with an underscore; those with two, not of a module."""
_REJECTED = {
    "builtins": {
        "exec", "eval", "compile", "open", "globals", "locals", "vars", "setattr", "delattr", "breakpoint", "input",
    },
    # Attributes that lead out of a computation: torch has `torch.sys`, a generator its frame.
    _ANY: {
        "sys", "os", "importlib", "builtins", "inspect", "gc", "ctypes", "subprocess", "pickle", "io",
        "linecache", "pathlib", "shutil", "runpy", "threading", "multiprocessing", "hub", "package",
        "cpp_extension", "load_library", "overrides", "_python_dispatch", "_subclasses", "_C", "_dynamo",
        "_inductor", "load", "save",
        "gi_frame", "gi_code", "cr_frame", "cr_code", "ag_frame", "ag_code", "tb_frame", "tb_next", "f_back", "f_builtins", "f_code",
        "f_globals", "f_locals",
    },
    # Modules inside the allowed ones, and functions that read files or draw a new seed.
    "torch": {
        "accelerator", "ao", "backends", "builtins", "classes", "common_types", "compiler", "contextlib", "convert_parameters", "cpp",
        "cpu", "ctypes", "dataclasses", "distributed", "export", "forward_ad", "from_file", "func", "function", "functools", "futures", "fx",
        "glob", "grad_mode", "graph", "import_ir_module", "import_ir_module_from_buffer", "intrinsic", "library", "masked", "module",
        "monitor", "mps", "mtia", "np", "optim", "parallel", "platform", "profiler", "profiler_legacy", "profiler_util", "qat",
        "quantizable", "quantization", "quantized", "quasirandom", "random", "return_types", "seed", "serialization", "signal", "storage",
        "testing", "textwrap", "torch", "torch_version", "version", "warnings", "windows", "xpu", "constraint_registry", "kl",
        "anomaly_mode", "autocast_mode", "grad_scaler",
    },
    "typing": {"get_type_hints", "ForwardRef"},  # they evaluate strings
    "dataclasses": {"make_dataclass"},
    "functools": {"update_wrapper"},  # it sets attributes of any object
    # Methods that Python or torch calls implicitly.
    "class": {
        "__torch_function__", "__torch_dispatch__", "__del__", "__getattribute__", "__init_subclass__", "__set_name__", "__eq__",
        "__setattr__",
    },
}  # fmt: skip
"""What a file may not use, by where it would find it: the names of Python, the attributes of any object, the
names in a torch module or another one, and the methods of its own classes."""


def child_violations(code: str) -> list[str]:
    """What a self-contained file does that it may not do, one line each."""
    tree = parse(code)
    if isinstance(tree, str):
        return [tree]
    reading = _ChildReading(tree)
    found = [at_line(node, what) for node in ast.walk(tree) for what in reading.wrong(node)]
    if class_named(tree, "Model") is None:
        found.append("it has no class Model")
    return found


class _ChildReading:
    def __init__(self, tree: ast.Module) -> None:
        nodes = list(ast.walk(tree))
        self._modules = dict(aliases(nodes))
        self._reached = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
        self._called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
        self._parameters = set(_parameters(nodes))

    def wrong(self, node: ast.AST) -> Iterator[str]:
        match node:
            case ast.Import(names=names):
                yield from (f"it imports {name.name}" for name in names if name.name not in _ALLOWED)
            case ast.ImportFrom(module=str() as module, level=0, names=names) if module in _ALLOWED:
                if refused := [name.name for name in names if not _may_use(module, name.name)]:
                    yield f"it imports {', '.join(refused)} from {module}"
            case ast.ImportFrom(module=origin, level=level):
                yield f"it imports {'.' * level}{origin or ''}"
            case ast.Name(id=name):
                yield from self._name(node, name)
            case ast.Call(func=ast.Name(id="getattr"), args=[of, name, *_]):
                if shown(of) != "self" or not _is_plain_name(name):
                    yield f"it looks names up: {shown(node)}"
            case ast.Call(
                func=ast.Name(id="wraps") | ast.Attribute(attr="wraps"), args=args, keywords=keywords
            ):
                if len(args) != 1 or keywords:
                    yield f"it changes more than a name: {shown(node)}"
            case ast.Attribute():
                yield from self._attribute(node)
            case ast.MatchClass(kwd_attrs=names):
                yield from (f"it reaches for {name}" for name in names if not _is_allowed(name))
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name in _REJECTED["class"]:
                yield f"it defines {name}"
            case ast.ClassDef(bases=bases, keywords=keywords):
                if keywords or any(
                    shown(base).rpartition(".")[2] in ("Tensor", "Parameter") for base in bases
                ):
                    yield f"a class of another kind than a module: {node.name}"

    def _name(self, node: ast.Name, name: str) -> Iterator[str]:
        if (name in _REJECTED["builtins"] and id(node) not in self._parameters) or _is_hidden(name):
            yield f"it uses {name}"
        elif name in ("getattr", "wraps") and id(node) not in self._called and isinstance(node.ctx, ast.Load):
            yield f"it passes {name} on"
        elif name in self._modules and id(node) not in self._reached and isinstance(node.ctx, ast.Load):
            yield f"it passes the module {name} on"

    def _attribute(self, node: ast.Attribute) -> Iterator[str]:
        place = dotted(node.value, self._modules)
        module = place if place in _ALLOWED or isinstance(node.value, ast.Name) else None
        if _is_hidden(node.attr):
            yield f"it uses {node.attr}"
        elif node.attr in _REJECTED[_ANY] or (module and not _may_use(module, node.attr)):
            yield f"it reaches for {shown(node)}"
        elif isinstance(node.ctx, ast.Store | ast.Del) and root_name(node) != "self":
            # The name may refer to anything, including torch's own classes.
            yield f"it changes {shown(node)}"


def _parameters(nodes: list[ast.AST]) -> Iterator[int]:
    """Ids of the names that refer to a function's parameters, even if they shadow a builtin such as `input`.

    Names inside a class nested in the function are excluded, because there a name may refer to the outer
    scope.
    """
    elsewhere = {name for node in nodes if isinstance(node, ast.Global) for name in node.names}
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            given = {one.arg for one in parameters(node)} - elsewhere
            todo: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else list(node.body)
            while todo:
                one = todo.pop()
                if isinstance(one, ast.Name) and one.id in given:
                    yield id(one)
                elif not isinstance(one, ast.ClassDef):
                    todo.extend(ast.iter_child_nodes(one))


def aliases(nodes: list[ast.AST]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        if isinstance(node, ast.Import):
            for name in node.names:
                yield (name.asname, name.name) if name.asname else (name.name.partition(".")[0],) * 2
        elif isinstance(node, ast.ImportFrom):
            for name in node.names:
                if (whole := f"{node.module}.{name.name}") in _ALLOWED:
                    yield name.asname or name.name, whole


def _may_use(module: str, name: str) -> bool:
    """Whether a child may use this name of a module."""
    if f"{module}.{name}" in _ALLOWED:
        return True
    names = _ALLOWED.get(module)
    if names is not None:
        return name in names and name not in _REJECTED.get(module, ())
    if name[0] == "_":
        return name in _UNDERSCORED and not name.startswith("__")
    sets = name.startswith("set_") and name != "set_grad_enabled"
    return not (name == "*" or name in _REJECTED["torch"] or name in _REJECTED[_ANY] or sets)


def _is_hidden(name: str) -> bool:
    return name.startswith("__") and name not in _UNDERSCORED


def _is_allowed(name: str) -> bool:
    """Whether the name is allowed as an attribute of any object."""
    return name not in _REJECTED[_ANY] and not _is_hidden(name)


def _is_plain_name(node: ast.expr) -> bool:
    """Whether it is a literal name, or an f-string with a literal prefix (`f"layer{i}"`), that is allowed."""
    match node:
        case ast.Constant(value=str() as name):
            return _is_allowed(name)
        case ast.JoinedStr(values=[ast.Constant(value=str() as start), *_]):
            return not start.startswith("_") and not any(name.startswith(start) for name in _REJECTED[_ANY])
    return False


# -------------------------------------------------------------------------------- a child beside the original


def same_class(original: str, child: str, name: str = "Model") -> bool:
    """Whether the child contains the original's class, under any name."""
    one, other = parse(original), parse(child)
    if isinstance(one, str) or isinstance(other, str):
        return False
    classes = [node for node in one.body if isinstance(node, ast.ClassDef)]
    if not classes:
        return False
    form = _class_form(one, class_named(one, name) or classes[-1])
    return any(form == _class_form(other, node) for node in other.body if isinstance(node, ast.ClassDef))


def _class_form(tree: ast.Module, wanted: ast.ClassDef) -> list[str]:
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    return normal_form(ast.Module([*imports, wanted], []))[0]


_ACTIVE = (
    ast.Call, ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.Subscript, ast.AugAssign, ast.Attribute,
)  # fmt: skip


def computes_nothing(code: str) -> bool:
    """Whether a child's `forward` calls nothing and uses no operator."""
    tree = parse(code)
    if isinstance(tree, str):
        return False
    model = class_named(tree, "Model")
    methods = [node for node in model.body if isinstance(node, ast.FunctionDef)] if model else []
    forward = next((node for node in methods if node.name == "forward"), None)
    return forward is not None and not any(
        isinstance(part, _ACTIVE) for statement in forward.body for part in ast.walk(statement)
    )
