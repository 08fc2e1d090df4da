"""Rewrites of a problem, to test whatever looks for copies.

Each disguise takes a problem's code in KernelBench's format and returns code that computes the same, or
nearly the same. They are the changes that a copy undergoes in other repositories. `renamed` gives every name
of the module's own another one.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterator

from kernelmill.base.python_text import parse_module

_KEPT = {"self", "forward", "get_inputs", "get_init_inputs", "get_input_kwargs", *dir(builtins)}


def reformatted(code: str) -> str:
    """Change formatting, comments and docstrings."""
    tree = parse_module(code)
    for function in _methods(tree, "forward"):
        function.body.insert(0, ast.Expr(ast.Constant("Überall anders beschrieben.")))
    return f"# Somebody's file.\n{_text(tree)}\n\n# The end.\n"


def renamed(code: str, new_name: Callable[[str], str] = lambda name: f"x_{name}") -> str:
    """Rename every name that the module defines. Names that are also a keyword or a method somewhere stay."""
    tree = parse_module(code)
    given: set[str] = set()
    taken = set(_KEPT)
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.arg(arg=name):
                given.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                given.add(name)
            case ast.Attribute(attr=name, value=ast.Name(id="self")):
                if isinstance(node.ctx, ast.Store):
                    given.add(name)
            case ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
                taken.add(name)
            case ast.Import() | ast.ImportFrom():
                taken |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    names = {name: new_name(name) for name in given if name not in taken and not name.startswith("__")}
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef() | ast.FunctionDef():
                node.name = names.get(node.name, node.name)
            case ast.arg():
                node.arg = names.get(node.arg, node.arg)
            case ast.Name():
                node.id = names.get(node.id, node.id)
            case ast.Attribute(value=ast.Name(id="self")):
                node.attr = names.get(node.attr, node.attr)
    return _text(tree)


def with_dead_code(code: str) -> str:
    """Add unread variables, an uncalled helper and an unused constant."""
    tree = parse_module(code)
    for function in _methods(tree, "forward"):
        dead = "unused = torch.zeros(1).sum() + 3\nalso_unused = unused * 2"
        function.body[len(function.body) // 2 : len(function.body) // 2] = parse_module(dead).body
    helper = "EPSILON = 1e-5\n\ndef helper(x):\n    return torch.tanh(x) * EPSILON"
    return f"{_text(tree)}\n\n{helper}\n"


def with_other_numbers(code: str) -> str:
    tree = parse_module(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            node.value = node.value + 1  # type: ignore[operator]
    return _text(tree)


def reordered(code: str) -> str:
    """Reverse the order of methods and classes."""
    tree = parse_module(code)
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    for node in classes:
        node.body.reverse()
    tree.body = [*(node for node in tree.body if not isinstance(node, ast.ClassDef)), *reversed(classes)]
    return _text(tree)


def with_temporaries(code: str) -> str:
    """Assign what `forward` returns to a variable first."""
    tree = parse_module(code)
    for function in _methods(tree, "forward"):
        body: list[ast.stmt] = []
        for node in function.body:
            if isinstance(node, ast.Return) and node.value is not None:
                body.append(ast.Assign([ast.Name("result", ast.Store())], node.value))
                node.value = ast.Name("result", ast.Load())
            body.append(node)
        function.body = body
    return _text(tree)


def wrapped(code: str) -> str:
    """Make the module a part of another one, which processes its result."""
    inner = renamed(code, lambda name: "Inner" if name == "Model" else name)
    return f"""{inner}

class Model(torch.nn.Module):
    def __init__(self, *args, **kwargs):
        super().__init__()
        self.inner = Inner(*args, **kwargs)

    def forward(self, *args):
        return self.inner(*args) * 2
"""


def guarded(code: str) -> str:
    """Add a check at the start of `forward` that computes something."""
    tree = parse_module(code)
    check = "flag = torch.zeros(1)\nif flag.sum() > 5:\n    raise ValueError('impossible')"
    for function in _methods(tree, "forward"):
        function.body[0:0] = parse_module(check).body
    return _text(tree)


DISGUISES: dict[str, Callable[[str], str]] = {
    disguise.__name__: disguise
    for disguise in (
        reformatted, renamed, with_dead_code, with_other_numbers, reordered, with_temporaries, wrapped, guarded,
    )
}  # fmt: skip


def _methods(tree: ast.Module, name: str) -> Iterator[ast.FunctionDef]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield from (part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == name)


def _text(tree: ast.Module) -> str:
    return ast.unparse(ast.fix_missing_locations(tree))
