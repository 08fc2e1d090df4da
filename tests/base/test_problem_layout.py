"""A message about a file that is not there names the command that makes it, in whichever command it is missed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelmill.base.problem_layout import maker_of
from kernelmill.testing.fake_hub import FakeHub
from tests.conftest import ROOT, evals_row, write_rows

IMPORT = "kernelmill problems import ScalingIntelligence/KernelBench"
COMMANDS = {
    "decompose": ["decompose", "data/kernelbench"],
    "a level of it": ["decompose", "data/kernelbench/level1"],
    "admit": ["admit", "data/kernelbench"],
    "specs": ["specs", "data/kernelbench", "--writer", "static"],
    "synthesize": ["synthesize", "data/kernelbench", "--teacher", "inductor"],
    "decontaminate": ["decontaminate", "rows.jsonl", "--against", "data/kernelbench"],
    "by its name": ["decontaminate", "rows.jsonl", "--against", "kernelbench"],
    "bench-model": [
        *(
            "bench-model",
            "data/kernelbench",
            "-o",
            "out",
            "--base-url",
            "http://127.0.0.1:9/v1",
            "--model",
            "m",
        )
    ],
    "problems list": ["problems", "list"],
    "problems export": ["problems", "export", "-o", "out"],
    "problems merge": ["problems", "merge", "."],
}


@pytest.mark.parametrize("line", COMMANDS.values(), ids=COMMANDS)
def test_who_misses_kernelbench_is_told_what_makes_it(
    line: list[str], mill: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_rows(tmp_path / "rows.jsonl", [evals_row(0)])
    with FakeHub() as hub:
        # What is not here is looked for on the Hub; its client has read the variables already.
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.endpoint)
        done = mill(*line)
        asked = hub.requests
    hub_like = line[0] in ("specs", "synthesize", "bench-model") or "data/kernelbench" in line[2:]
    assert bool(asked) == hub_like, asked
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert IMPORT in last
    assert line[0] == "bench-model" or last == done.stderr.strip()


@pytest.mark.parametrize("command", ["decompose", "admit", "specs"])
def test_who_finds_it_empty_is_told_too(command: str, mill: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "data/kernelbench").mkdir(parents=True)
    more = ["--writer", "static"] if command == "specs" else []
    done = mill(command, "data/kernelbench", *more)
    assert (done.returncode, IMPORT in done.stderr) == (1, True)


def test_the_command_makes_the_folder_that_is_missed() -> None:
    assert maker_of("data/kernelbench") == maker_of(Path("kernelbench")) == f": {IMPORT} makes it"
    assert maker_of("/x/kernelbench") == f": {IMPORT} --into /x/kernelbench makes it"
    assert maker_of("data/kernelbench/level1/1_A.py") == f": {IMPORT} makes data/kernelbench"
    assert maker_of("data/other") == maker_of("ScalingIntelligence/KernelBench") == ""


def test_the_batch_script_says_it_alike(tmp_path: Path) -> None:
    line = [sys.executable, str(ROOT / "scripts/batch_decompose.py")]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.stderr == f"batch_decompose.py: data/kernelbench: no such folder: {IMPORT} makes it\n"
