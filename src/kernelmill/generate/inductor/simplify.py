"""Clean-up of generated kernels.

`simplify` removes aliases, conditions that are always true, and unread values. `name_repeats` gives arithmetic
that a kernel repeats a name where it is first used.
"""

from __future__ import annotations

import ast
import math
import re
from typing import Any

import numpy as np

_INDEX = re.compile(r"[xyzr]\d*(_\d+)?|roffset|rindex")
_SMALLEST = 5
"""The fewest names and numbers in an expression that is worth a name."""
_MARK = "repeated_"


class _Shorter(ast.NodeTransformer):
    """Turns `x[:]` into `x`, drops cache hints, and shortens float32 literals."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        node.keywords = [keyword for keyword in node.keywords if keyword.arg != "eviction_policy"]
        match node:
            case ast.Call(
                func=ast.Attribute(attr="full"),
                args=[_, ast.Constant(value=float(number)), ast.Attribute(attr="float32")],
            ) if math.isfinite(number):
                node.args[1] = ast.Constant(float(str(np.float32(number))))
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        whole = isinstance(node.slice, ast.Slice) and not (
            node.slice.lower or node.slice.upper or node.slice.step
        )
        return node.value if whole else node


def simplify(function: ast.FunctionDef) -> None:
    """Drop aliases, conditions that are always true, and assignments that nothing reads."""
    _Shorter().visit(function)
    _without_second_names(function)
    _Known(_constants(function)).visit(function)
    while True:
        read = {
            node.id
            for node in ast.walk(function)
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store)
        }
        before = ast.dump(function)
        for block in ast.walk(function):
            if isinstance(body := getattr(block, "body", None), list):
                body[:] = [node for node in body if not _unread(node, read)] or [ast.Pass()]
        if ast.dump(function) == before:
            return


def _without_second_names(function: ast.FunctionDef) -> None:
    """Inline index aliases such as `x0 = xindex`, which stand beside the original."""
    first = {
        node.targets[0].id: node.value.id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Name)
        and _INDEX.fullmatch(node.targets[0].id)
    }
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            while node.id in first:
                node.id = first[node.id]


def _constants(function: ast.FunctionDef) -> dict[str, int]:
    """Collect strides that templates assign as named constants."""
    return {
        node.targets[0].id: node.value.value
        for node in function.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
        and type(node.value.value) is int
        and node.targets[0].id.startswith("stride_")
    }


class _Known(ast.NodeTransformer):
    """Evaluates conditions that are known before the kernel runs."""

    def __init__(self, constants: dict[str, int]) -> None:
        self._constants = constants

    def visit_Name(self, node: ast.Name) -> ast.AST:
        known = isinstance(node.ctx, ast.Load) and node.id in self._constants
        return ast.Constant(self._constants[node.id]) if known else node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
                if ast.dump(left) == ast.dump(right):
                    return ast.Constant(True)
                if isinstance(left, ast.Constant) and isinstance(right, ast.Constant):
                    return ast.Constant(left.value == right.value)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        decisive = isinstance(node.op, ast.Or)
        if any(isinstance(one, ast.Constant) and one.value is decisive for one in node.values):
            return ast.Constant(decisive)
        node.values = [one for one in node.values if not isinstance(one, ast.Constant)]
        if not node.values:
            return ast.Constant(not decisive)
        return node if len(node.values) > 1 else node.values[0]

    def visit_If(self, node: ast.If) -> Any:
        self.generic_visit(node)
        match node:
            case ast.If(test=ast.Constant(value=bool(known))):
                return node.body if known else node.orelse
        return node


def _unread(node: ast.stmt, read: set[str]) -> bool:
    match node:
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name not in read
    return False


def name_repeats(function: ast.FunctionDef) -> None:
    """Name repeated arithmetic on names and numbers, within one block of statements.

    Inductor assigns every name once, so within a block each name has one value."""
    given: list[str] = []
    for block in [node for node in ast.walk(function) if isinstance(getattr(node, "body", None), list)]:
        statements: list[ast.stmt] = block.body  # type: ignore[attr-defined]
        while found := _largest_repeat(statements):
            given.append(f"{_MARK}{len(given)}")
            _replace(statements, found, given[-1])
    numbers = {name: f"index{number}" for number, name in enumerate(_by_line(function, set(given)))}
    for node in ast.walk(function):
        if isinstance(node, ast.Name):
            node.id = numbers.get(node.id, node.id)


def _by_line(node: ast.AST, names: set[str]) -> list[str]:
    """Return those of the names that are assigned in the node, in source order."""
    found: list[str] = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store) and child.id in names:
            found.append(child.id)
        found += _by_line(child, names)
    return found


def _largest_repeat(statements: list[ast.stmt]) -> ast.BinOp | None:
    counts: dict[str, list[ast.BinOp]] = {}
    for statement in statements:
        if isinstance(statement, ast.Assign | ast.Expr):
            for node in ast.walk(statement):
                if (
                    isinstance(node, ast.BinOp)
                    and _leaves(node) >= _SMALLEST
                    and not _is_whole(node, statement)
                ):
                    counts.setdefault(ast.dump(node), []).append(node)
    repeated = [nodes[0] for nodes in counts.values() if len(nodes) > 1]
    return max(repeated, key=_leaves, default=None)


def _is_whole(node: ast.BinOp, statement: ast.stmt) -> bool:
    """Whether it is the whole value of an assignment, and so already has a name."""
    return isinstance(statement, ast.Assign) and statement.value is node


def _leaves(node: ast.expr) -> int:
    """Count the names and numbers; 0 if the expression is more than arithmetic on these."""
    match node:
        case ast.Name() | ast.Constant():
            return 1
        case ast.UnaryOp(operand=inner):
            return _leaves(inner)
        case ast.BinOp(left=left, right=right):
            one, other = _leaves(left), _leaves(right)
            return one + other if one and other else 0
    return 0


def _replace(statements: list[ast.stmt], found: ast.BinOp, name: str) -> None:
    wanted = ast.dump(found)

    class Named(ast.NodeTransformer):
        def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
            if ast.dump(node) == wanted:
                return ast.Name(name, ast.Load())
            self.generic_visit(node)
            return node

    first: int | None = None
    for place, statement in enumerate(statements):
        if isinstance(statement, ast.Assign | ast.Expr):
            before = ast.dump(statement)
            Named().visit(statement)
            if first is None and ast.dump(statement) != before:
                first = place
    assert first is not None
    given = ast.Assign(targets=[ast.Name(name, ast.Store())], value=found, lineno=0)
    statements.insert(first, ast.fix_missing_locations(given))
