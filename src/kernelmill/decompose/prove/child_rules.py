"""Check what a self-contained file (one under level_*) may contain, on its syntax tree. Nothing is run.

A child computes with torch and a few harmless modules. Everything through which Python code reaches other
code is rejected: other files, the original, the prover, frames, torch internals. Modules are recognised by
name, so a module may not be passed on under another name. Whatever is accessed in a module must be a listed
module or a public name that is not rejected.

Code that gets past these checks and changes torch or the prover is detected at run time (`prove.tampering`).
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

from kernelmill.decompose.prove.parent_rules import parse

_STANDARD = {
    module.__name__: set(getattr(module, "__all__", [n for n in vars(module) if n[0] != "_"]))
    for module in (collections, collections.abc, copy, dataclasses, enum, functools, itertools, math, numbers, typing)
} | {"__future__": {"annotations"}}  # fmt: skip
_STANDARD["collections"].add("abc")
for _module, _names in {
    "typing": {"get_type_hints", "ForwardRef"},  # they evaluate strings
    "dataclasses": {"make_dataclass"},
    "functools": {"update_wrapper"},  # it sets attributes of any object
}.items():
    _STANDARD[_module] -= _names
_TORCH = {
    "torch", "torch.amp", "torch.autograd", "torch.cuda", "torch.cuda.amp", "torch.distributions", "torch.fft", "torch.func",
    "torch.functional", "torch.jit", "torch.linalg", "torch.nested", "torch.nn", "torch.nn.attention", "torch.nn.functional",
    "torch.nn.init", "torch.nn.modules", "torch.nn.modules.utils", "torch.nn.parameter", "torch.nn.utils",
    "torch.nn.utils.parametrizations", "torch.nn.utils.rnn", "torch.ops", "torch.ops.aten", "torch.sparse", "torch.special",
    "torch.types", "torch.utils", "torch.utils.checkpoint",
}  # fmt: skip
_ONLY = {
    "torch.cuda": {"amp", "is_available"},
    "torch.func": {
        "functional_call",
        "grad",
        "hessian",
        "jacfwd",
        "jacrev",
        "jvp",
        "stack_module_state",
        "vjp",
        "vmap",
    },
    "torch.jit": {"export", "ignore", "script", "script_if_tracing", "unused", "Final"},
    "torch.nn.utils": {"parametrizations", "rnn", "spectral_norm", "weight_norm"},
    "torch.ops": {"aten"},
    "torch.utils": {"checkpoint"},
}
"""The only names allowed in these modules."""
_PRIVATE = {"_assert", "_weight_norm", "_pair", "_single", "_triple", "_quadruple", "_ntuple"}
_NOT_OF_TORCH = {
    "accelerator", "ao", "backends", "builtins", "classes", "common_types", "compiler", "contextlib", "convert_parameters", "cpp",
    "cpu", "ctypes", "dataclasses", "distributed", "export", "forward_ad", "from_file", "func", "function", "functools", "futures", "fx",
    "glob", "grad_mode", "graph", "import_ir_module", "import_ir_module_from_buffer", "intrinsic", "library", "masked", "module",
    "monitor", "mps", "mtia", "np", "optim", "parallel", "platform", "profiler", "profiler_legacy", "profiler_util", "qat",
    "quantizable", "quantization", "quantized", "quasirandom", "random", "return_types", "seed", "serialization", "signal", "storage",
    "testing", "textwrap", "torch", "torch_version", "version", "warnings", "windows", "xpu", "constraint_registry", "kl",
    "anomaly_mode", "autocast_mode", "grad_scaler",
}  # fmt: skip
"""Modules inside the allowed ones, and functions that read files or draw a new seed."""
_BUILTINS = {
    "exec", "eval", "compile", "open", "globals", "locals", "vars", "setattr", "delattr", "breakpoint", "input",
}  # fmt: skip
_OUT = {
    "sys", "os", "importlib", "builtins", "inspect", "gc", "ctypes", "subprocess", "pickle", "io",
    "linecache", "pathlib", "shutil", "runpy", "threading", "multiprocessing", "hub", "package",
    "cpp_extension", "load_library", "overrides", "_python_dispatch", "_subclasses", "_C", "_dynamo",
    "_inductor", "load", "save",
    "gi_frame", "gi_code", "cr_frame", "cr_code", "ag_frame", "ag_code", "tb_frame", "tb_next", "f_back", "f_builtins", "f_code",
    "f_globals", "f_locals",
}  # fmt: skip
"""Attributes of any object that lead out of a computation: torch has `torch.sys`, a generator its frame."""
_DUNDERS = {"__init__", "__name__", "__class__", "__version__", "__file__"}
_HOOKS = {
    "__torch_function__", "__torch_dispatch__", "__del__", "__getattribute__", "__init_subclass__", "__set_name__", "__eq__",
    "__setattr__",
}  # fmt: skip
"""Methods that Python or torch calls implicitly."""


def child_violations(code: str) -> list[str]:
    """What a self-contained file does that it may not do, one line each."""
    tree = parse(code)
    if isinstance(tree, str):
        return [tree]
    reading = _Reading(tree)
    found = [
        f"line {getattr(node, 'lineno', '?')}: {what}"
        for node in ast.walk(tree)
        for what in reading.wrong(node)
    ]
    if not any(isinstance(node, ast.ClassDef) and node.name == "Model" for node in tree.body):
        found.append("it has no class Model")
    return found


class _Reading:
    def __init__(self, tree: ast.Module) -> None:
        nodes = list(ast.walk(tree))
        self._modules = dict(aliases(nodes))
        self._reached = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
        self._called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
        self._parameters = set(_parameters(nodes))

    def wrong(self, node: ast.AST) -> Iterator[str]:
        match node:
            case ast.Import(names=names):
                yield from (f"it imports {name.name}" for name in names if not _is_known(name.name))
            case ast.ImportFrom(module=module, level=level, names=names):
                if level or not _is_known(module or ""):
                    yield f"it imports {'.' * level}{module or ''}"
                elif refused := [name.name for name in names if not _has(module or "", name.name)]:
                    yield f"it imports {', '.join(refused)} from {module}"
            case ast.Name(id=name):
                yield from self._name(node, name)
            case ast.Call(func=ast.Name(id="getattr"), args=[of, name, *_]):
                if _text(of) != "self" or not _is_plain_name(name):
                    yield f"it looks names up: {_text(node)}"
            case ast.Call(
                func=ast.Name(id="wraps") | ast.Attribute(attr="wraps"), args=args, keywords=keywords
            ):
                if len(args) != 1 or keywords:
                    yield f"it changes more than a name: {_text(node)}"
            case ast.Attribute():
                yield from self._attribute(node)
            case ast.MatchClass(kwd_attrs=names):
                yield from (f"it reaches for {name}" for name in names if not _is_allowed(name))
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name in _HOOKS:
                yield f"it defines {name}"
            case ast.ClassDef(bases=bases, keywords=keywords):
                if keywords or any(
                    _text(base).rpartition(".")[2] in ("Tensor", "Parameter") for base in bases
                ):
                    yield f"a class of another kind than a module: {node.name}"

    def _name(self, node: ast.Name, name: str) -> Iterator[str]:
        if (name in _BUILTINS and id(node) not in self._parameters) or (
            _is_dunder(name) and name not in _DUNDERS
        ):
            yield f"it uses {name}"
        elif name in ("getattr", "wraps") and id(node) not in self._called and isinstance(node.ctx, ast.Load):
            yield f"it passes {name} on"
        elif name in self._modules and id(node) not in self._reached and isinstance(node.ctx, ast.Load):
            yield f"it passes the module {name} on"

    def _attribute(self, node: ast.Attribute) -> Iterator[str]:
        if not _is_allowed(node.attr):
            yield f"it {'reaches for ' + _text(node) if node.attr in _OUT else 'uses ' + node.attr}"
        elif (module := self._module(node.value)) is not None and not _has(module, node.attr):
            yield f"it reaches for {_text(node)}"
        elif isinstance(node.ctx, ast.Store | ast.Del) and _root(node) != "self":
            # The name may refer to anything, including torch's own classes.
            yield f"it changes {_text(node)}"

    def _module(self, node: ast.expr) -> str | None:
        """The module that an expression refers to, as far as its names tell."""
        match node:
            case ast.Name(id=name):
                return self._modules.get(name)
            case ast.Attribute(value=value, attr=name):
                module = f"{self._module(value)}.{name}"
                return module if _is_known(module) else None
        return None


def _parameters(nodes: list[ast.AST]) -> Iterator[int]:
    """Ids of the names that refer to a function's parameters, even if they shadow a builtin such as `input`.

    Names inside a class nested in the function are excluded, because there a name may refer to the outer
    scope.
    """
    elsewhere = {name for node in nodes if isinstance(node, ast.Global) for name in node.names}
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            own = node.args
            every = [*own.posonlyargs, *own.args, *own.kwonlyargs, own.vararg, own.kwarg]
            given = {one.arg for one in every if one is not None} - elsewhere
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
                if _is_known(whole := f"{node.module}.{name.name}"):
                    yield name.asname or name.name, whole


def _is_known(module: str) -> bool:
    return module in _TORCH or module in _STANDARD


def _has(module: str, name: str) -> bool:
    """Whether a child may use this name of a module."""
    if module in _STANDARD:
        return name in _STANDARD[module]
    if f"{module}.{name}" in _TORCH:
        return True
    if module in _ONLY:
        return name in _ONLY[module]
    if name in _PRIVATE:
        return True
    sets = name.startswith("set_") and name != "set_grad_enabled"
    return not (name == "*" or name[0] == "_" or name in _NOT_OF_TORCH or name in _OUT or sets)


def _is_allowed(name: str) -> bool:
    """Whether the name is allowed as an attribute of any object."""
    return name not in _OUT and not (_is_dunder(name) and name not in _DUNDERS)


def _is_dunder(name: str) -> bool:
    return name.startswith("__")


def _is_plain_name(node: ast.expr) -> bool:
    """Whether it is a literal name, or an f-string with a literal prefix (`f"layer{i}"`), that is allowed."""
    match node:
        case ast.Constant(value=str() as name):
            return _is_allowed(name)
        case ast.JoinedStr(values=[ast.Constant(value=str() as start), *_]):
            return not start.startswith("_") and not any(name.startswith(start) for name in _OUT)
    return False


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _text(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())[:120]
