"""Parse a file, and recognise the expressions that several rules are about. Nothing is run."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from kernelmill.base.python_text import parse_module

DTYPES = {
    "float64", "float32", "float16", "bfloat16", "float", "double", "half", "complex64", "complex128",
    "bool", "int8", "int16", "int32", "int64", "uint8", "int", "long",
}  # fmt: skip


def parse(code: str) -> ast.Module | str:
    """The syntax tree, or why there is none."""
    try:
        return parse_module(code)
    except SyntaxError as error:
        return f"it does not parse: {error.msg} (line {error.lineno})"
    except (ValueError, RecursionError, MemoryError) as error:
        return f"it does not parse: {type(error).__name__}"


def at_line(node: ast.AST, what: str) -> str:
    """A violation as one line."""
    return f"line {getattr(node, 'lineno', '?')}: {what}"


def shown(node: ast.AST) -> str:
    """The node's code, shortened to part of a line."""
    return " ".join(ast.unparse(node).split())[:120]


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> list[ast.arg]:
    """All parameters of a function, `*args` and `**kwargs` last."""
    own = function.args
    every = [*own.posonlyargs, *own.args, *own.kwonlyargs, own.vararg, own.kwarg]
    return [one for one in every if one is not None]


def class_named(tree: ast.Module, name: str) -> ast.ClassDef | None:
    """A class at the top of a file."""
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return next((node for node in classes if node.name == name), None)


def root_name(node: ast.expr) -> str:
    """The variable that attributes and items are taken of: `self` for `self.layers[0].weight`; or empty."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def dotted(node: ast.expr, modules: Mapping[str, str]) -> str | None:
    """The full name of what is accessed through a module (`torch.cuda.is_available`); else None.

    `modules` are the modules by the names that the file has for them.
    """
    match node:
        case ast.Name(id=name):
            return modules.get(name)
        case ast.Attribute(value=value, attr=name):
            place = dotted(value, modules)
            return f"{place}.{name}" if place is not None else None
    return None


def is_constant(node: ast.expr, literal: bool = False) -> bool:
    """Whether it is a number, a string, a dtype, or a tuple of constants: what no code can change.

    Arithmetic on constants counts as well. With `literal`, only what a parent may pass to a child counts: lists
    and dicts of constants too, but no arithmetic.
    """
    match node:
        case ast.Constant():
            return True
        case ast.Tuple(elts=parts):
            return all(is_constant(part, literal) for part in parts)
        case ast.Call(func=ast.Name(id="float"), args=[ast.Constant(value=value)], keywords=[]):
            return isinstance(value, str) or not literal  # float("inf")
        case ast.Attribute(value=ast.Name(id="torch"), attr=name) if name in DTYPES:
            return True
        case ast.Attribute(value=ast.Name(id="torch" | "math"), attr=name):
            return not literal and name in ("pi", "inf", "e", "nan")
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float()) | ast.Call() as one):
            return is_constant(one, literal)
        case ast.UnaryOp(operand=one):
            return not literal and is_constant(one)
        case ast.BinOp(left=left, right=right):
            return not literal and is_constant(left) and is_constant(right)
        case ast.List(elts=parts):
            return literal and all(is_constant(part, literal) for part in parts)
        case ast.Dict(keys=keys, values=values):
            return literal and all(one is not None and is_constant(one, literal) for one in [*keys, *values])
    return False
