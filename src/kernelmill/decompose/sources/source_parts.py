"""Extract parts of the author's file for emitted files, and check whether it needs anything but torch."""

from __future__ import annotations

import ast
from typing import NamedTuple

from kernelmill.base.python_text import parse_module

ALLOWED = frozenset([
    "torch", "math", "typing", "collections", "functools", "__future__", "dataclasses", "abc", "enum", "itertools", "copy",
])  # fmt: skip


class Inputs(NamedTuple):
    imports: list[str]
    text: str


def imported(code: str) -> set[str]:
    """The packages that a source imports anywhere in its text."""
    found: set[str] = set()
    for node in ast.walk(parse_module(code)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add("." if node.level else (node.module or "").partition(".")[0])
    return found


def standing_alone(code: str) -> str | None:
    """The source, cut to what its model uses if the rest needs more than torch; None if the model does."""
    if imported(code) <= ALLOWED:
        return code
    needed = _needed(code, ["Model", "get_inputs", "get_init_inputs"])
    text = "\n\n\n".join(_text(code, node) for node in needed) + "\n"
    return text if imported(text) <= ALLOWED else None


def own_inputs(code: str) -> Inputs | None:
    """`get_inputs` as the author wrote it, with its dependencies; None if it cannot be extracted."""
    needed = _needed(code, ["get_inputs"])
    if not needed or any(isinstance(node, ast.ClassDef) for node in needed):
        return None
    imports, rest = _parted(needed)
    if imports is None:
        return None
    assigned = [_text(code, node) for node in rest if not isinstance(node, ast.FunctionDef)]
    functions = [_text(code, node) for node in rest if isinstance(node, ast.FunctionDef)]
    top = "\n".join(assigned)
    return Inputs(imports, (f"{top}\n\n\n" if top else "") + "\n\n\n".join(functions) + "\n")


def own_classes(code: str, names: list[str]) -> Inputs | None:
    """Classes as the author wrote them, with their dependencies; None if they cannot be extracted."""
    needed = _needed(code, names)
    imports, rest = _parted(needed)
    if not needed or imports is None:
        return None
    return Inputs(imports, "\n\n\n".join(_text(code, node) for node in rest) + "\n")


def _needed(code: str, names: list[str]) -> list[ast.stmt]:
    """The statements that define these names, and everything those use, in file order."""
    places: dict[str, ast.stmt] = {}
    for node in parse_module(code).body:
        for name in _defined(node):
            places[name] = node
    needed: dict[ast.stmt, None] = {}
    todo: list[ast.stmt] = [places[name] for name in names if name in places]
    while todo:
        node = todo.pop()
        if node in needed:
            continue
        needed[node] = None
        used = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
        todo += [places[name] for name in used if name in places]
    return sorted(needed, key=lambda node: node.lineno)


def _parted(nodes: list[ast.stmt]) -> tuple[list[str] | None, list[ast.stmt]]:
    """The imports (None if any is outside `ALLOWED`), and the other statements."""
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    rest = [node for node in nodes if not isinstance(node, ast.Import | ast.ImportFrom)]
    return ([ast.unparse(node) for node in imports] if all(map(_harmless, imports)) else None), rest


def _text(code: str, node: ast.stmt) -> str:
    """The statement's source text, including decorators."""
    first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])
    return "\n".join(code.splitlines()[first - 1 : node.end_lineno])


def _harmless(node: ast.Import | ast.ImportFrom) -> bool:
    names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
    return all(name.partition(".")[0] in ALLOWED for name in names)


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return [one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)]
    return []
