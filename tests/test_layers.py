"""Imports go downwards: each package may import those below it, and no other. Dynamic references (`flow`) are not imports."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import kernelmill

PACKAGE = Path(kernelmill.__file__).parent
LAYERS = [
    "errors flow",
    "base",
    "store settings sandbox torch_calls",
    "tokens llm runner",
    "problems",
    "evaluate",
    "generate.inductor stages",
    "cli curate decompose",
    "publish problems.sets",
    "generate.synthesize rl",
    "benchmarks serve pipeline doctor testing __main__",
]
"""From the bottom to the top. A package imports from lower lines only, and from itself."""
LEVEL = {name: level for level, line in enumerate(LAYERS) for name in line.split()}
BARE = ("evaluate", "sandbox", "torch_calls", "rl")
"""Run where nothing but the standard library, numpy, torch and triton is installed; `rl` with the standard library alone."""
BESIDE = {"pydantic", "msgspec", "rich", "aiohttp", "jinja2", "pyarrow", "huggingface_hub", "datasets", "tokenizers", "rensa"}  # fmt: skip


def room(module: str) -> str:
    """The package of the table that a module is in; empty for `kernelmill` itself."""
    parts = module.split(".")[1:]
    return next((name for name in (".".join(parts[:2]), ".".join(parts[:1])) if name in LEVEL), "")


def imported(tree: ast.AST) -> list[str]:
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


FILES = sorted(PACKAGE.rglob("*.py"))
MODULES = {
    ".".join(("kernelmill", *file.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): file
    for file in FILES
}


def test_every_module_is_in_a_room_of_the_table() -> None:
    assert [module for module in MODULES if module.count(".") and not room(module)] == ["kernelmill.generate"]


def test_imports_go_downwards_only() -> None:
    wrong = []
    for module, file in MODULES.items():
        here = room(module)
        for name in imported(ast.parse(file.read_text(encoding="utf-8"))):
            there = room(name) if name.startswith("kernelmill.") else ""
            if there and here and there != here and LEVEL[there] >= LEVEL[here]:
                wrong.append(f"{module} imports {name}")
    assert wrong == []


STAGES = ["sources", "record", "cut", "write", "prove"]
"""The packages of `decompose`, in the order data flows."""


def test_a_stage_of_decompose_imports_earlier_stages_only() -> None:
    wrong = []
    for module, file in MODULES.items():
        here = module.split(".")[2:3]
        if not module.startswith("kernelmill.decompose.") or here[0] not in STAGES:
            continue
        later = set(STAGES[STAGES.index(here[0]) + 1 :]) | ({"cut", "write"} if here == ["prove"] else set())
        for name in imported(ast.parse(file.read_text(encoding="utf-8"))):
            if name.startswith("kernelmill.decompose.") and name.split(".")[2] in later:
                wrong.append(f"{module} imports {name}")
    assert wrong == []


def test_no_folder_holds_more_files_than_one_can_keep_in_mind() -> None:
    folders = {file.parent for file in FILES}
    wide = {
        str(folder.relative_to(PACKAGE)): count
        for folder in folders
        if (count := len(list(folder.glob("*.py"))) - 1) > 17
    }
    assert wide == {}


def test_every_folder_says_what_lives_there() -> None:
    for folder in {file.parent for file in FILES} - {PACKAGE}:
        text = (folder / "__init__.py").read_text(encoding="utf-8")
        assert len(ast.get_docstring(ast.parse(text)) or "") > 60, folder


@pytest.mark.parametrize("name", BARE)
def test_what_runs_on_a_bare_machine_imports_no_more_than_that_has(name: str) -> None:
    """At import time; inside functions a package may be asked for where it is there."""
    for file in sorted((PACKAGE / name).rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        top = ast.Module([node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)], [])
        assert not BESIDE & {one.partition(".")[0] for one in imported(top)}, file
