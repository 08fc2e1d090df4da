"""Clean-up of generated kernels: removes aliases, conditions that are always true, and unread values."""

from __future__ import annotations

import ast
import math
import re
from typing import Any

import numpy as np

_INDEX = re.compile(r"[xyzr]\d*(_\d+)?|roffset|rindex")


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
