"""AST helpers for the static rules."""

from __future__ import annotations

import ast
from collections.abc import Iterator

_SKIPPED = (ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop)


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def children(node: ast.AST) -> Iterator[ast.AST]:
    for name in node._fields:
        value = getattr(node, name, None)
        if isinstance(value, list):
            for item in value:
                if isinstance(item, ast.AST) and not isinstance(item, _SKIPPED):
                    yield item
        elif isinstance(value, ast.AST) and not isinstance(value, _SKIPPED):
            yield value


def text_of(node: ast.AST | None) -> str | None:
    """The string value of an expression, or None if unknown.

    Handles constants, their sums, joins and reversals.
    """
    parts: list[str] = []
    stack = [node]
    while stack and len(parts) < 200:
        part = stack.pop()
        match part:
            case ast.Constant(value=str(text)):
                parts.append(text)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                stack += [right, left]
            case ast.JoinedStr(values=values):
                stack += reversed(values)
            case ast.FormattedValue(value=value, format_spec=None):
                stack.append(value)
            case ast.Call(
                func=ast.Attribute(value=ast.Constant(value=""), attr="join"),
                args=[ast.List(elts=elts) | ast.Tuple(elts=elts)],
            ):
                stack += reversed(elts)
            case ast.Subscript(
                value=ast.Constant(value=str(text)),
                slice=ast.Slice(
                    lower=None, upper=None, step=ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=1))
                ),
            ):
                parts.append(text[::-1])
            case _:
                return None
    return None if stack else "".join(parts)


def is_main_test(test: ast.expr) -> bool:
    """Whether a condition is `__name__ == "__main__"`, possibly combined with others by `and`."""
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    for part in parts:
        if isinstance(part, ast.Compare) and len(part.ops) == 1 and isinstance(part.ops[0], ast.Eq):
            sides = [part.left, part.comparators[0]]
            if any(isinstance(s, ast.Name) and s.id == "__name__" for s in sides) and any(
                isinstance(s, ast.Constant) and s.value == "__main__" for s in sides
            ):
                return True
    return False


def is_plain_assignment(node: ast.AST) -> bool:
    """Whether this is an assignment to names that calls nothing.

    It then matters only if one of the names is used.
    """
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return False
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    if not all(isinstance(t, ast.Name | ast.Tuple | ast.List) for t in targets):
        return False
    return not any(isinstance(n, ast.Call | ast.Await) for n in ast.walk(node.value))


def targets_of(node: ast.AST) -> tuple[str, ...]:
    assert isinstance(node, ast.Assign | ast.AnnAssign)
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return tuple(n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name))
