"""What the text of a kernel may use: Triton's language, its own names, and arithmetic.

A kernel is Python, and the interpreter runs it as Python. What compiles cannot look at the machine below it, but a
branch that the compiler leaves out can, so a kernel's text is looked at before it runs. It reaches Python's own
things in two ways: by attributes of modules other than the language's, and by attributes that lead from a value
to what it is made of. What is allowed is what kernels use; whatever else Python can do is refused.
"""

from __future__ import annotations

import ast
import functools
import math
import types
from typing import Any

from triton.runtime import interpreter as stock
from triton.runtime.jit import ConstexprFunction, JITFunction

_OUTSIDE = {"triton": ("language", "cdiv", "next_power_of_2")}
"""What a kernel may use of Triton's modules other than the language."""


class NotInTheTrace(AttributeError):
    """A kernel uses what a compiler may resolve, but what a trace cannot hold."""


def module_part(name: str, has: dict[str, Any]) -> types.ModuleType:
    """What a kernel takes from a module that is not Triton's: a plain module, since the compiler wants one."""

    def missing(attribute: str) -> Any:
        raise NotInTheTrace(f"a kernel uses {name}.{attribute}")

    part = types.ModuleType(name)
    part.__dict__.update(has, __getattr__=missing)
    _parts.append(part)
    return part


_parts: list[types.ModuleType] = []


def is_language(module: str) -> bool:
    return module == "triton.language" or module.startswith("triton.language.")


def is_usable(module: str, name: str) -> bool:
    """Whether a kernel may use what a module of Triton's has under this name."""
    if is_language(module):
        return not any(part.startswith("_") for part in name.split("."))
    return name in _OUTSIDE.get(module, ())


def leads_out(name: str) -> bool:
    """Whether a value's attribute of this name is what the value is made of."""
    return name.startswith("_") or name in _LEADS_OUT


def trouble_with(definition: ast.FunctionDef, uses: dict[str, Any]) -> str:
    """What the kernel uses that is not the language; empty if there is nothing. `uses` has its names' values.

    A module is named only where an attribute is taken from it, so that no variable, argument or list holds one.
    """
    named = {
        id(inner)
        for node in ast.walk(definition)
        if isinstance(node, ast.Attribute)
        for inner in [node.value]
    }
    outer = [one for one in ast.walk(definition) if isinstance(one, ast.Attribute) and id(one) not in named]
    chains = {id(node) for node in outer}
    for node in ast.walk(definition):
        if not isinstance(node, _NODES) and node is not definition:
            return f"{type(node).__name__} in line {getattr(node, 'lineno', 1)}"
        if isinstance(node, ast.Name):
            if node.id.startswith("__"):
                return node.id
            if isinstance(uses.get(node.id), types.ModuleType) and id(node) not in named:
                return f"{node.id} as a value"
            if isinstance(uses.get(node.id), types.ModuleType) and not isinstance(node.ctx, ast.Load):
                return f"another {node.id}"
        if isinstance(node, ast.arg) and isinstance(uses.get(node.arg), types.ModuleType):
            return f"another {node.arg}"
        if isinstance(node, ast.Attribute):
            if node.attr.startswith("__"):
                return f".{node.attr}"
            if id(node) in chains and (trouble := _trouble_with_chain(node, uses)):
                return trouble
    return "" if _is_plain(definition) else "an argument's default or annotation that has to be computed"


def _is_plain(definition: ast.FunctionDef) -> bool:
    """Whether nothing is called where the function is defined, and nothing made that a call could change."""
    arguments = definition.args
    given = [*arguments.defaults, *arguments.kw_defaults, definition.returns]
    given += [one.annotation for one in (*arguments.args, *arguments.kwonlyargs, *arguments.posonlyargs)]
    nodes = [one for node in given if node is not None for one in ast.walk(node)]
    calls = [one for one in nodes if isinstance(one, ast.Call)]
    made = (ast.List, ast.Dict, ast.ListComp)
    return not any(isinstance(one, made) for one in nodes) and all(
        isinstance(one.func, ast.Name) and one.func.id == "float" for one in calls
    )


def _trouble_with_chain(node: ast.Attribute, uses: dict[str, Any]) -> str:
    """Follow `a.b.c` from the left, through modules and then values."""
    path: list[str] = []
    root: ast.expr = node
    while isinstance(root, ast.Attribute):
        path.insert(0, root.attr)
        root = root.value
    found = uses.get(root.id) if isinstance(root, ast.Name) else None
    while path and isinstance(found, types.ModuleType):
        name, owner = path.pop(0), found
        found = vars(owner).get(name) if any(owner is part for part in _parts) else getattr(owner, name, None)
        if owner is math or any(owner is part for part in _parts):
            continue
        if isinstance(found, types.ModuleType):
            if not is_language(found.__name__) and found is not math:
                return ast.unparse(node)
        elif not (is_usable(owner.__name__, name) and belongs(found)):
            return ast.unparse(node)
    if isinstance(found, types.ModuleType) and not path:
        return f"{ast.unparse(node)} as a value"
    return next((f".{name}" for name in path if leads_out(name)), "")


def belongs(value: Any) -> bool:
    """Whether this is the language's own: not what its modules have imported from Python."""
    value = value.func if isinstance(value, functools.partial) else value
    module = getattr(value, "__module__", None) or type(value).__module__
    return value is None or module.startswith(("triton.", "kernelmill.")) or module in ("builtins", "triton")


_NODES = (
    *(ast.arguments, ast.arg, ast.keyword, ast.comprehension, ast.expr_context),
    *(ast.boolop, ast.operator, ast.unaryop, ast.cmpop),
    *(ast.Return, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For, ast.While, ast.If, ast.Expr, ast.Assert),
    *(
        ast.Pass,
        ast.Break,
        ast.Continue,
        ast.BoolOp,
        ast.BinOp,
        ast.UnaryOp,
        ast.IfExp,
        ast.Compare,
        ast.Call,
    ),
    *(
        ast.Constant,
        ast.Name,
        ast.Attribute,
        ast.Subscript,
        ast.Slice,
        ast.Starred,
        ast.List,
        ast.Tuple,
        ast.Dict,
    ),
    *(ast.ListComp, ast.JoinedStr, ast.FormattedValue, ast.Raise),
)
"""What a kernel may consist of."""
_LEADS_OUT = frozenset(
    {name for kind in (JITFunction, ConstexprFunction, stock.InterpretedFunction) for name in dir(kind)}
    | {"handle", "data", "fn", "src", "interpreted", "arg_names", "params", "kwargs", "module", "signature"}
    | {"device_caches", "hash", "raw_src", "rewriter", "inspect", "format", "format_map"}
) - {"type", "repr"}
"""Attributes of functions, of what is behind the language's values, and texts' own way to attributes."""
