"""What the text of a kernel may use: Triton's language, its own names, and arithmetic.

A kernel is Python, and the interpreter runs it as Python. What compiles cannot look at the machine below it, but a
branch that the compiler leaves out can, so a kernel's text is looked at before it runs. It reaches Python's own
things in two ways: by attributes of modules other than the language's, and by attributes that lead from a value
to what it is made of.
"""

from __future__ import annotations

import ast
import math
import types
from typing import Any

_OUTSIDE = {"triton": ("language", "cdiv", "next_power_of_2")}
"""What a kernel may use of Triton's modules other than the language."""
INSIDES = frozenset({"handle", "fn", "run", "warmup", "src", "cache", "interpreted", "arg_names", "params"})
"""Attributes of values and functions of the language that lead out of it."""


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
        return not any(part.startswith("_") or part in INSIDES for part in name.split("."))
    return name in _OUTSIDE.get(module, ())


def trouble_with(definition: ast.FunctionDef, uses: dict[str, Any]) -> str:
    """What the kernel uses that is not the language; empty if there is nothing. `uses` has its names' values."""
    for node in ast.walk(definition):
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal, ast.ClassDef, ast.Lambda)):
            return f"a statement of Python's own in line {node.lineno}"
        if isinstance(node, ast.Name) and node.id.startswith("__"):
            return node.id
        if isinstance(node, ast.Attribute) and (node.attr.startswith("__") or node.attr in INSIDES):
            return f".{node.attr}"
        if isinstance(node, ast.Attribute) and not _reachable(node, uses):
            return ast.unparse(node)
    return ""


def _reachable(node: ast.Attribute, uses: dict[str, Any]) -> bool:
    """Whether this is an attribute of a value, or of a module whose attribute a kernel may use."""
    owner = _module(node.value, uses)
    if owner is None or owner is math or any(owner is part for part in _parts):
        return True
    found = getattr(owner, node.attr, None)
    if isinstance(found, types.ModuleType) and not is_language(found.__name__) and found is not math:
        return False
    return is_usable(owner.__name__, node.attr)


def _module(node: ast.expr, uses: dict[str, Any]) -> types.ModuleType | None:
    """The module that an expression names, if it names one."""
    if isinstance(node, ast.Name):
        found = uses.get(node.id)
    elif isinstance(node, ast.Attribute):
        owner = _module(node.value, uses)
        found = None if owner is None else getattr(owner, node.attr, None)
    else:
        found = None
    return found if isinstance(found, types.ModuleType) else None
