"""Common subexpressions: arithmetic that a kernel repeats gets a name where it is first used."""

from __future__ import annotations

import ast

_SMALLEST = 5
"""The fewest names and numbers in an expression that is worth a name."""
_MARK = "repeated_"


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
