"""Whether the kernels of a program are those of the candidate's source, or of a package that is installed here.

The candidate's process says what a kernel's text is. The judge has the source, and looks there.
"""

from __future__ import annotations

import ast
import functools
import os
import sys
from collections.abc import Iterator
from typing import Any, Literal

from kernelmill.base.python_text import parse_module
from kernelmill.evaluate.kernel_source import CANDIDATE_MODULE

Trouble = Literal["", "another text", "no such function"]


def strange_kernel(kernels: dict[str, dict[str, Any]], code: str) -> tuple[str, Trouble]:
    """A kernel that its module does not define so, and what is wrong; two empty texts if there is none."""
    for key, kernel in kernels.items():
        module = str(kernel.get("module"))
        known = _definitions(code) if module == CANDIDATE_MODULE else _installed(module)
        try:
            [own] = parse_module(str(kernel["text"])).body
        except (SyntaxError, ValueError):
            return key, "another text"
        if not isinstance(own, ast.FunctionDef) or own.name not in known:
            return key, "no such function"
        if _form(own) not in known[own.name]:
            return key, "another text"
    return "", ""


@functools.lru_cache(maxsize=8)
def _definitions(code: str) -> dict[str, set[str]]:
    """The forms of all functions of a source, by name."""
    found: dict[str, set[str]] = {}
    try:
        nodes: Iterator[ast.AST] = ast.walk(parse_module(code))
    except (SyntaxError, ValueError):
        return found
    for node in nodes:
        if isinstance(node, ast.FunctionDef):
            found.setdefault(node.name, set()).add(_form(node))
    return found


def _form(function: ast.FunctionDef) -> str:
    """What a function says, without its decorators, its docstring and the values of its defaults."""
    arguments = function.args
    bare = ast.arguments(
        posonlyargs=arguments.posonlyargs,
        args=arguments.args,
        vararg=arguments.vararg,
        kwonlyargs=arguments.kwonlyargs,
        kw_defaults=[None] * len(arguments.kwonlyargs),
        kwarg=arguments.kwarg,
        defaults=[],
    )
    said = [one for one in function.body if not _is_text(one)]
    return "\n".join([function.name, ast.dump(bare), *map(ast.dump, said)])


def _is_text(statement: ast.stmt) -> bool:
    """Whether this is a docstring, which changes with its indentation."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


@functools.lru_cache(maxsize=64)
def _installed(module: str) -> dict[str, set[str]]:
    """The functions of a module that is installed here, which is not imported."""
    parts = module.split(".")
    if not all(part.isidentifier() for part in parts):
        return {}
    for folder in filter(os.path.isabs, sys.path):
        base = os.path.join(folder, *parts)
        for path in (f"{base}.py", os.path.join(base, "__init__.py")):
            if os.path.isfile(path):
                with open(path, encoding="utf-8", errors="replace") as file:
                    return _definitions(file.read())
    return {}
