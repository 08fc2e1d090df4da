"""Parts of the author's file that emitted files use: how inputs are made, and whether the file needs nothing but torch."""

from __future__ import annotations

import ast
from typing import NamedTuple

ALLOWED = frozenset(
    [
        "torch",
        "math",
        "typing",
        "collections",
        "functools",
        "__future__",
        "dataclasses",
        "abc",
        "enum",
        "itertools",
        "copy",
    ]
)


class Inputs(NamedTuple):
    imports: list[str]
    text: str


def imported(code: str) -> set[str]:
    """The packages that a source imports, wherever it does."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add("." if node.level else (node.module or "").partition(".")[0])
    return found


def self_contained(code: str) -> bool:
    return imported(code) <= ALLOWED


def own_inputs(code: str) -> Inputs | None:
    """`get_inputs` as the author wrote it, with what it needs; None where it cannot be taken out of the file."""
    tree = ast.parse(code)
    places: dict[str, ast.stmt] = {}
    for node in tree.body:
        for name in _defined(node):
            places[name] = node
    wanted = places.get("get_inputs")
    if not isinstance(wanted, ast.FunctionDef):
        return None
    needed: dict[ast.stmt, None] = {}
    todo: list[ast.stmt] = [wanted]
    while todo:
        node = todo.pop()
        if node in needed:
            continue
        needed[node] = None
        names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
        todo += [places[name] for name in names if name in places]
    if any(isinstance(node, ast.ClassDef) for node in needed):
        return None
    ordered = sorted(needed, key=lambda node: node.lineno)
    imports = [ast.unparse(node) for node in ordered if isinstance(node, ast.Import | ast.ImportFrom)]
    if any(not _harmless(node) for node in ordered if isinstance(node, ast.Import | ast.ImportFrom)):
        return None
    rest = [node for node in ordered if not isinstance(node, ast.Import | ast.ImportFrom)]
    lines = [ast.get_source_segment(code, node) or "" for node in rest]
    assigned = [line for node, line in zip(rest, lines, strict=True) if not isinstance(node, ast.FunctionDef)]
    functions = [line for node, line in zip(rest, lines, strict=True) if isinstance(node, ast.FunctionDef)]
    top = "\n".join(assigned)
    return Inputs(imports, (f"{top}\n\n\n" if top else "") + "\n\n\n".join(functions) + "\n")


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
