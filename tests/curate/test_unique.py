from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelmill.base.rows import Row
from kernelmill.curate import unique as unique_module
from kernelmill.curate.unique import Unique
from kernelmill.problems.similarity.modules import Modules
from kernelmill.problems.similarity.structure import jaccard, structure_of
from kernelmill.settings.fields import UniqueSettings
from tests.conftest import ROOT, evals_row, read_rows, write_rows

BLOCK = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class Block(nn.Module):
    '''A block.'''
    def __init__(self, width: int, slope=0.1):
        super().__init__()
        self.fc = nn.Linear(width, width)
        self.slope = slope

    def forward(self, x):
        # a comment
        y = self.fc(x)
        return F.leaky_relu(y, self.slope) + x

def get_inputs():
    return [torch.rand([4, 4])]

def get_init_inputs():
    return [[], {'width': 4}]
"""
RENAMED = """
import os
import torch
from torch import nn
from torch.nn.functional import leaky_relu

class ResidualThing(torch.nn.Module):
    def __init__(self, d, k=0.1):
        super().__init__()
        self.linear = torch.nn.Linear(d, d)
        self.k = k
    def forward(self, inp):
        out = self.linear(inp)
        return leaky_relu(out, self.k) + inp

def get_inputs():
    return [torch.rand([16, 16])]
"""
OTHER_BLOCK = BLOCK.replace("F.leaky_relu(y, self.slope) + x", "torch.softmax(y * self.slope, -1) @ x.t()")
NEARLY = BLOCK.replace("slope=0.1", "slope=0.2")


def row(n: int, reward: float, code: str, name: str) -> dict[str, Any]:
    return evals_row(n, reward, info={"module_name": name, "python_code": code, "triton_code": "kernel"})


ROWS = [
    row(0, 1.0, BLOCK, "Block"),
    row(1, 2.0, RENAMED, "ResidualThing"),
    row(2, 3.0, OTHER_BLOCK, "Block"),
    row(3, 2.0, BLOCK, "Block"),
    row(4, 1.5, NEARLY, "Block"),
]


@pytest.mark.parametrize(("by", "kept"), [("name", [1, 2]), ("structure", [1, 2, 4]), ("near", [1, 2])])
def test_the_best_row_of_each_module_is_kept_and_the_first_of_equals(
    tmp_path: Path, mill: Callable[..., Any], by: str, kept: list[int]
) -> None:
    write_rows(tmp_path / "rows.jsonl", ROWS)
    done = mill("unique", "rows.jsonl", "-o", "out.jsonl", "--by", by)
    assert done.returncode == 0, done.stderr
    assert [row["example_id"] for row in read_rows(tmp_path / "out.jsonl")] == kept
    assert "--by name 2, --by structure 3, --by near 2" in done.stdout
    rejected = read_rows(tmp_path / "out.rejected.jsonl")
    assert len(rejected) == 5 - len(kept)
    if by == "near":
        assert [bad["reason"].split(": ")[1].split(",")[0] for bad in rejected] == [
            "the same code", "the same code", f"{jaccard(structure_of(NEARLY).shingles, structure_of(BLOCK).shingles):.0%} of the code in common",
        ]  # fmt: skip


def test_kept_rows_keep_their_bytes(tmp_path: Path, mill: Callable[..., Any]) -> None:
    path = write_rows(tmp_path / "rows.jsonl", ROWS)
    assert mill("unique", "rows.jsonl", "-o", "out.jsonl").returncode == 0
    lines = path.read_bytes().splitlines()
    assert (tmp_path / "out.jsonl").read_bytes().splitlines() == [lines[1], lines[2]]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.permutations(range(5)), st.lists(st.integers(0, 1000), min_size=5, max_size=5, unique=True))
def test_without_ties_the_order_of_rows_does_not_matter(order: list[int], rewards: list[int]) -> None:
    import json

    def kept(indices: list[int]) -> set[int]:
        rows = [
            Row(place, f"x:{place}", json.dumps(ROWS[index] | {"reward": float(rewards[index])}).encode())
            for place, index in enumerate(indices)
        ]
        with Modules() as modules:
            stage = Unique("near", 0.85, True, modules)
            for one in rows:
                stage.scan(one)
            stage.decide()
            return {
                index for one, index in zip(rows, indices, strict=True) if isinstance(stage.take(one), bytes)
            }

    assert kept(list(order)) == kept(list(range(5)))


def test_the_old_script_reads_and_writes_the_old_places(tmp_path: Path) -> None:
    (tmp_path / "outputs").mkdir()
    write_rows(tmp_path / "outputs/filtered_dataset.jsonl", ROWS)
    line = [sys.executable, str(ROOT / "scripts/filter_unique_best.py")]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert len(read_rows(tmp_path / "outputs/filtered_dataset-filtered.jsonl")) == 2


def test_a_bad_row_is_told_or_rejected(tmp_path: Path, mill: Callable[..., Any]) -> None:
    write_rows(tmp_path / "rows.jsonl", [ROWS[0], ROWS[1] | {"reward": None}])
    done = mill("unique", "rows.jsonl", "-o", "out.jsonl")
    assert done.returncode == 1
    assert "rows.jsonl:2: field $.reward" in done.stderr
    assert mill("unique", "rows.jsonl", "-o", "out.jsonl", "--on-bad-row", "reject").returncode == 0
    assert len(read_rows(tmp_path / "out.jsonl")) == 1


def test_by_name_a_large_file_is_not_analysed_unless_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(unique_module, "COMPARED", 100)
    write_rows(tmp_path / "rows.jsonl", ROWS)
    for compare, told in ((False, "--by name 2 (--compare counts"), (True, "--by structure 3, --by near 2")):
        unique_module.unique(
            UniqueSettings(source="rows.jsonl", output=Path("out.jsonl"), by="name", compare=compare)
        )
        assert told in capsys.readouterr().out


def test_two_modules_of_one_file_are_two_and_the_file_under_other_names_is_the_same(
    tmp_path: Path, mill: Callable[..., Any]
) -> None:
    file = OTHER_BLOCK + BLOCK.replace("class Block", "class Second")
    renamed = file.replace("Block", "First").replace("Second", "Last")
    rows = [row(0, 1.0, file, "Block"), row(1, 1.0, file, "Second"), row(2, 2.0, renamed, "Last")]
    write_rows(tmp_path / "rows.jsonl", rows)
    for by in ("structure", "near"):
        assert mill("unique", "rows.jsonl", "-o", "out.jsonl", "--by", by).returncode == 0
        assert [kept["example_id"] for kept in read_rows(tmp_path / "out.jsonl")] == [0, 2]
