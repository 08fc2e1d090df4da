"""The source of a kernel's function, and its name among others of that name."""

from __future__ import annotations

import ast
import inspect
import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kernelmill.base.python_text import parse_module

CANDIDATE_MODULE = "model_new"
"""The name of the candidate's module in its own process: such as a user may give it."""


@dataclass
class _File:
    """The text of a file, and its functions by name and first line."""

    text: str
    lines: list[str]
    functions: dict[tuple[str, int], ast.FunctionDef]


_files: dict[str, _File] = {}
_keys: dict[int, tuple[str, Any]] = {}
"""The key of each kernel of this process by the id of its function, which is kept so that no id is used again."""


def key_of(function: Any) -> str:
    """A kernel's key: its qualified name, with a number if another function has that name too.

    It is the name of the function that is compiled, so it has to be one.
    """
    if id(function) not in _keys:
        taken, key, number = {other for other, _ in _keys.values()}, function.__qualname__, 2
        while key in taken:
            key, number = f"{function.__qualname__}_{number}", number + 1
        _keys[id(function)] = key, function
    return _keys[id(function)][0]


def source_lines(function: Any) -> tuple[list[str], int]:
    """Do what `inspect.getsourcelines` does, without reading the function token by token."""
    code = getattr(function, "__code__", None)
    if code is not None:
        file = _file_of(function)
        found = file.functions.get((code.co_name, code.co_firstlineno))
        if found is not None:
            return file.lines[code.co_firstlineno - 1 : found.end_lineno], code.co_firstlineno
    return inspect.getsourcelines(function)


def definition(function: Any) -> ast.FunctionDef | None:
    """The function's definition in its file, to be changed: it is handed out once."""
    code = function.__code__
    return _file_of(function).functions.pop((code.co_name, code.co_firstlineno), None)


def _file_of(function: Any) -> _File:
    name = function.__code__.co_filename
    linecache.checkcache(name)
    lines = linecache.getlines(name, function.__globals__)
    known, text = _files.get(name), "".join(lines)
    if known is None or known.text != text:
        known = _files[name] = _File(text, lines, _functions(text))
    return known


def _functions(text: str) -> dict[tuple[str, int], ast.FunctionDef]:
    try:
        tree = parse_module(text)
    except SyntaxError:  # not the text that the module was made of
        return {}
    return {
        (node.name, min([node.lineno, *(one.lineno for one in node.decorator_list)])): node
        for node in _defined(tree)
    }


def _defined(block: ast.AST) -> Iterator[ast.FunctionDef]:
    """Find the functions below a node. Only statements are looked at: expressions define none."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for node in getattr(block, name, ()):
            if isinstance(node, ast.FunctionDef):
                yield node
            yield from _defined(node)
