"""`prompts/MAIN_PROMPT.md`: what it tells its reader to run exists, and the folder that it shows passes the proof."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelmill.base.resources import bundled
from kernelmill.decompose.model_folder import read_tree
from kernelmill.flow import COMMANDS
from kernelmill.settings.commands import parser_of

Mill = Callable[..., subprocess.CompletedProcess[str]]
PROMPT = bundled("prompts/MAIN_PROMPT.md").read_text(encoding="utf-8")
_FILE = re.compile(r"^`([\w/.]+)`\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COPY = re.compile(r"^\| `([\w/.]+\.py)` \| `([\w/.]+\.py)` \|$", re.MULTILINE)


def laid_out(folder: Path) -> Path:
    """The prompt's example, as its reader would write it."""
    for path, text in _FILE.findall(PROMPT):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    for copy, of in _COPY.findall(PROMPT):
        (folder / copy).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / of, folder / copy)
    return folder


def test_the_folder_of_the_example_passes_the_proof(tmp_path: Path, mill: Mill) -> None:
    folder = laid_out(tmp_path / "models/tiny")
    done = mill("prove", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert read_tree(folder)[0].metadata.verification_status == "PASS"


def test_every_command_and_option_of_the_prompt_exists() -> None:
    parsers = {name: parser_of(COMMANDS[name]) for name in ("decompose", "prove")}
    lines = re.findall(r"^kernelmill (.+)$", PROMPT, re.MULTILINE)
    assert len(lines) >= 3
    for line in lines:
        name, *rest = line.split()
        assert name in parsers, line
        parsers[name].parse_args(rest)
    options = set(re.findall(r"`(--[\w-]+)`", PROMPT))
    known = {
        option
        for parser in parsers.values()
        for action in parser._actions
        for option in action.option_strings
    }
    assert options <= known


@pytest.mark.parametrize("field", ["source", "inputs", "output", "weights", "modules", "calls"])
def test_the_fields_of_the_graph_are_described(field: str) -> None:
    assert f"`{field}`" in PROMPT
