"""Find the author's names for results: the variable that each expression of a source is assigned to.

An expression is identified by its position in the text, as Python's frames report it (`code.co_positions`).
Subexpressions have no name, nor do values assigned to anything but names, attributes and their items.
"""

from __future__ import annotations

import ast
from types import CodeType

from kernelmill.base.python_text import parse_module

SourcePosition = tuple[int | None, int | None, int | None, int | None]
"""First line, last line, first column, last column."""


def variables(code: str) -> dict[SourcePosition, str | list[str]]:
    """Map the position of each assigned expression to its variable, or to several if it is unpacked."""
    found: dict[SourcePosition, str | list[str]] = {}
    for node in ast.walk(parse_module(code)):
        match node:
            case (
                ast.Assign(targets=[target], value=value)
                | ast.AnnAssign(target=target, value=ast.expr() as value)
            ):
                _assigned(target, value, found)
            case ast.AugAssign(target=target):
                found[_position(node)] = _name(target)
    return {position: name for position, name in found.items() if name}


def _assigned(target: ast.expr, value: ast.expr, found: dict[SourcePosition, str | list[str]]) -> None:
    match target, value:
        case ast.Tuple(elts=targets) | ast.List(elts=targets), ast.Tuple(elts=values) | ast.List(elts=values):
            if len(targets) == len(values):
                for one, made in zip(targets, values, strict=True):
                    _assigned(one, made, found)
        case _, ast.IfExp(body=one, orelse=other):
            _assigned(target, one, found)
            _assigned(target, other, found)
        case ast.Tuple(elts=targets) | ast.List(elts=targets), _:
            found[_position(value)] = [_name(one) for one in targets]
        case ast.Subscript(), _:  # the item is written once its value exists
            found[_position(target)] = _name(target)
        case _:
            found[_position(value)] = _name(target)


def _name(target: ast.expr) -> str:
    """The name of a target; empty if it has none."""
    match target:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.strip("_")
        case ast.Subscript(value=of):
            return _name(of)
    return ""


def _position(node: ast.expr | ast.stmt) -> SourcePosition:
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset


class PositionLookup:
    """Looks up the source position of a frame."""

    def __init__(self) -> None:
        self._of: dict[CodeType, list[SourcePosition]] = {}

    def at(self, code: CodeType, instruction: int) -> SourcePosition:
        """`instruction` is the frame's `f_lasti`."""
        if code not in self._of:
            self._of[code] = list(code.co_positions())
        return self._of[code][instruction // 2]
