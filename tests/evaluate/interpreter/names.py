"""The names of the cases, read without importing them."""

from __future__ import annotations

import ast
from pathlib import Path

HERE = Path(__file__).parent
FILES = [f"tests.evaluate.interpreter.{path.stem}" for path in sorted(HERE.glob("cases_*.py"))]


def cases_of(module: str) -> list[str]:
    tree = ast.parse((HERE / f"{module.rpartition('.')[2]}.py").read_text(encoding="utf-8"))
    return [
        node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("case_")
    ]
