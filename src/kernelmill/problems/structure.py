"""When two modules are the same code, whatever their names.

A module is reduced to its classes and helper functions, without imports, docstrings, annotations, `get_inputs` and its
siblings, and with every name that the module itself gives (classes, functions, parameters, variables, attributes) replaced by
its order of appearance. Names from imports are written out (`nn.Linear` and `torch.nn.Linear` are one). What is left is hashed, and
cut into shingles for comparing modules that are nearly the same. It sees code, not meaning: `x + y` and `y + x` differ.
"""

from __future__ import annotations

import ast
import hashlib
import re
import warnings
from typing import NamedTuple

from kernelmill.problems.source import CONVENTION_FUNCTIONS

SHINGLE = 5
_TOKEN = re.compile(r"\w+|[^\w\s]")


class Structure(NamedTuple):
    key: str
    """Equal for modules that are the same code."""
    shingles: frozenset[str]
    """Runs of five tokens of the normal form; their overlap says how alike two modules are."""


def structure_of(code: str) -> Structure:
    """The structure of a module. Code that does not parse is taken as text, blanks apart."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(code)
        text = ast.unparse(_normal(tree))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        text = " ".join(code.split())
    tokens = _TOKEN.findall(text)
    runs = range(max(1, len(tokens) - SHINGLE + 1))
    shingles = frozenset(" ".join(tokens[at : at + SHINGLE]) for at in runs)
    return Structure(hashlib.sha256(text.encode("utf-8", "replace")).hexdigest(), shingles)


def jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    """Shared shingles over all shingles."""
    return len(one & other) / len(one | other) if one or other else 1.0


def _normal(tree: ast.Module) -> ast.Module:
    imports = _imports(tree)
    body = [node for node in tree.body if not _is_scaffold(node)]
    given = _given_names(body)
    module = ast.Module(body, [])
    _Normalizer(imports, given).visit(module)
    return ast.fix_missing_locations(module)


def _is_scaffold(node: ast.stmt) -> bool:
    if isinstance(node, ast.Import | ast.ImportFrom | ast.If):
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True
    return isinstance(node, ast.FunctionDef) and node.name in CONVENTION_FUNCTIONS


def _imports(tree: ast.Module) -> dict[str, str]:
    """What each imported name stands for, written out."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                found[alias.asname or alias.name] = f"{node.module or ''}.{alias.name}"
    return found


def _given_names(body: list[ast.stmt]) -> set[str]:
    """Names that the module gives itself: these may be anything without changing what it is."""
    names: set[str] = set()
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                names.add(node.name)
            elif isinstance(node, ast.arg):
                names.add(node.arg)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
                names.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                names.add(node.attr)
    # These are called by others, and a keyword argument of torch may share its name with a variable.
    return names - {"forward", "self"} - {name for name in names if name.startswith("__")}


class _Normalizer(ast.NodeTransformer):
    def __init__(self, imports: dict[str, str], given: set[str]) -> None:
        self._imports = imports
        self._given = given
        self._order: dict[str, str] = {}

    def _name(self, name: str) -> str:
        if name in self._given:
            return self._order.setdefault(name, f"n{len(self._order)}")
        return self._imports.get(name, name)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.name = self._name(node.name)
        node.body = _without_docstring(node.body)
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = self._name(node.name)
        node.returns = None
        node.body = _without_docstring(node.body)
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.arg, node.annotation = self._name(node.arg), None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if node.value is None:
            return None
        return self.visit(ast.Assign([node.target], node.value))  # type: ignore[no-any-return]

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self._name(node.id)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        node.value = self.visit(node.value)
        # Only what hangs on `self`: a method of a tensor may share its name with something of ours.
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            node.attr = self._name(node.attr)
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        node.value = self.visit(node.value)
        return node


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    kept = [
        node for node in body if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    ]
    return kept or [ast.Pass()]
