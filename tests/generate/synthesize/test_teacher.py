"""`synthesize --teacher inductor`: rows without a model, resumed like any others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernelmill.base.answers import read_answer
from kernelmill.cli import main
from kernelmill.generate.inductor.teacher import Teacher
from kernelmill.generate.inductor.variants import VARIANTS

pytestmark = pytest.mark.slow

GOOD = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))

    def forward(self, x):
        return torch.sigmoid(x * self.weight)

def get_inputs():
    return [torch.randn(24, 40)]

def get_init_inputs():
    return [40]
"""
BAD = GOOD.replace("torch.sigmoid(x * self.weight)", "x[: int(x.sum().item()) % 3 + 1]")


def run(folder: Path, *more: str) -> list[dict[str, Any]]:
    line = [
        "synthesize",
        "--teacher",
        "inductor",
        "--problems",
        str(folder / "problems"),
        "-o",
        str(folder / "evals.jsonl"),
    ]
    assert main([*line, "--device", "cpu", "--workers", "1", *more]) == 0
    text = (folder / "evals.jsonl").read_text(encoding="utf-8") if "--dry-run" not in more else ""
    return [json.loads(row) for row in text.splitlines()]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "problems").mkdir()
    (tmp_path / "problems" / "1_Good.py").write_text(GOOD)
    (tmp_path / "problems" / "2_Bad.py").write_text(BAD)
    return tmp_path


def test_every_problem_becomes_a_row_in_one_turn_and_a_second_run_writes_and_judges_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = run(folder, "--turns", "3")
    # More turns are allowed, and the compiler would say the same again.
    assert [row["num_turns"] for row in (good, bad)] == [1.0, 1.0]
    assert [row["ended"] for row in (good, bad)] == ["correct", "the compiler"]
    assert (good["verdict"]["verdict"], good["reward"], good["extern"]) == ("correct", 1.0, [])
    assert "@triton.jit" in read_answer(good["completion"][0]["content"]).code
    assert good["answer"] == read_answer(good["completion"][0]["content"]).code
    assert good["generation_ms"] > 0
    assert good["writer"].startswith("inductor of torch ")
    assert (bad["verdict"]["status"], bad["reward"], bad["answer"]) == ("FORMAT_ERROR", 0.0, "")
    assert bad["verdict"]["error"].startswith("not written: error: ")

    async def never(*ignored: object) -> None:
        raise AssertionError("it is written already")

    monkeypatch.setattr(Teacher, "write", never)
    assert run(folder, "--turns", "3") == [good, bad]
    assert "2 already finished, 0 to do" in capsys.readouterr().err


def test_a_dry_run_says_what_would_be_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(folder, "--dry-run")
    assert "to write: 2" in capsys.readouterr().out
    assert not (folder / "evals.jsonl").exists()


@pytest.mark.heavy
def test_several_rollouts_are_variants_with_other_blocks_and_the_same_result(folder: Path) -> None:
    (folder / "problems" / "2_Bad.py").unlink()
    large = GOOD.replace("(24, 40)", "(1024, 512)").replace("[40]", "[512]")
    (folder / "problems" / "1_Good.py").write_text(large)
    first, second, *_, again = run(folder, "--rollouts", str(len(VARIANTS) + 1))
    assert (first["variant"], second["variant"], again["variant"]) == (0, 1, 0)
    assert first["answer"] == again["answer"] != second["answer"]
    assert {row["verdict"]["verdict"] for row in (first, second, again)} == {"correct"}
    (best,) = run(folder, "--rollouts", str(len(VARIANTS) + 1), "--keep", "fastest")
    assert best["verdict"]["verdict"] == "correct"
