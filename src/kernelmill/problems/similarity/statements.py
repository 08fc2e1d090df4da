"""A file's statements, and those that compute nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernelmill.problems.definitions import is_super


def flat(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield a file's statements, also inside conditions and `try` blocks.

    Statements under a main guard are left out.
    """
    for node in body:
        if isinstance(node, ast.If) and not _is_main(node.test):
            yield from flat(node.body)
            yield from flat(node.orelse)
        elif isinstance(node, ast.Try):
            parts = [node.body, *(handler.body for handler in node.handlers), node.orelse, node.finalbody]
            for part in parts:
                yield from flat(part)
        else:
            yield node


def _is_main(test: ast.expr) -> bool:
    return any(isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(test))


def is_plain_super(node: ast.AST, class_name: str) -> bool:
    """Whether the node is `super()`, or its equivalent inside this class: `super(Net, self)`."""
    if not (isinstance(node, ast.Call) and is_super(node)):
        return False
    if not node.args:
        return True
    named = node.args[0]
    return isinstance(named, ast.Name) and named.id in (class_name, "__class__")


def does_nothing(node: ast.FunctionDef | ast.AsyncFunctionDef, class_name: str) -> bool:
    """Whether this is an `__init__` that only calls its base's, which can be left out."""
    arguments = node.args
    if node.name != "__init__" or len(arguments.args) != 1:
        return False
    if arguments.posonlyargs or arguments.kwonlyargs or arguments.vararg or arguments.kwarg:
        return False
    return all(
        isinstance(statement, ast.Pass)
        or (isinstance(statement, ast.Expr) and _is_text_or_base_call(statement.value, class_name))
        for statement in node.body
    )


def _is_text_or_base_call(node: ast.expr, class_name: str) -> bool:
    return isinstance(node, ast.Constant) or (
        isinstance(node, ast.Call)
        and not (node.args or node.keywords)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "__init__"
        and is_plain_super(node.func.value, class_name)
    )
