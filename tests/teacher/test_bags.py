"""Bags of embeddings are written in Triton, with offsets too; and a fault of the teacher's own is nobody's wrong candidate."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelmill.cli import main
from kernelmill.teacher.bags import embedding_bag
from kernelmill.teacher.teacher import Teacher, Written

BAGS = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(50, 16, mode="mean")

    def forward(self, x, offsets):
        return self.bag(x, offsets)

def get_inputs():
    return [torch.randint(0, 50, (40,)), torch.tensor([0, 4, 4, 20, 33])]

def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("starts", [[0, 4, 4, 20, 40], [0, 0, 7, 40, 40], [0]])
def test_bags_with_offsets_are_torchs_own(starts: list[int], mode: str, last: bool) -> None:
    draw = torch.Generator().manual_seed(0)
    given = torch.randint(0, 50, (40,), generator=draw)
    weight = torch.randn(50, 8, generator=draw)
    offsets = torch.tensor(starts if not last or starts[-1] == 40 else [*starts, 40])
    more: dict[str, Any] = {"mode": mode, "include_last_offset": last, "scale_grad_by_freq": False}
    ours = embedding_bag(input=given, weight=weight, offsets=offsets, **more)
    torch.testing.assert_close(ours, torch.nn.functional.embedding_bag(given, weight, offsets, **more))


def test_weights_of_samples_and_bags_without_offsets_are_torchs_own() -> None:
    draw = torch.Generator().manual_seed(0)
    given, weight = torch.randint(0, 50, (6, 5), generator=draw), torch.randn(50, 8, generator=draw)
    each = torch.randn(6, 5, generator=draw)
    for more in ({"mode": "sum", "per_sample_weights": each}, {"mode": "max"}, {"padding_idx": 3}):
        expected = torch.nn.functional.embedding_bag(given, weight, **more)
        torch.testing.assert_close(embedding_bag(given, weight, **more), expected)


FAULTS = """
from kernelmill.teacher import worker
from kernelmill.teacher.kernels import Unwritable

errors = [TypeError("an unexpected keyword"), KeyError("mode"), Unwritable("by keyword"), RuntimeError("on values")]

def failing(request):
    raise errors[0]

worker._written = failing
while errors:
    try:
        worker.handle({})
    except Exception as error:
        print(type(error).__name__)
    del errors[0]
"""


def test_a_mistake_in_our_own_code_is_told_apart_from_what_cannot_be_written() -> None:
    done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, timeout=200)
    assert done.stdout.split() == ["TeacherFault", "TeacherFault", "Unwritable", "RuntimeError"], done.stderr


def test_a_fault_of_the_teacher_is_an_inconclusive_row_with_no_reward_and_no_feedback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def faulty(*_: object) -> Written:
        return Written(error="error: TeacherFault: TypeError: oh", fault=True, seconds=0.1)

    monkeypatch.setattr(Teacher, "write", faulty)
    (tmp_path / "1_Bags.py").write_text(BAGS)
    line = ["synthesize", "--teacher", "inductor", "--device", "cpu", "--workers", "1", "--turns", "2"]
    assert main([*line, "--problems", "1_Bags.py", "-o", "evals.jsonl"]) == 0
    (row,) = map(json.loads, Path("evals.jsonl").read_text().splitlines())
    assert (row["verdict"]["verdict"], row["verdict"]["status"]) == ("inconclusive", "UNSUPPORTED")
    assert (row["reward_masked"], row["verdict"]["feedback"], row["num_turns"]) == (True, "", 1.0)
    assert "a fault of the teacher's own, please report it" in row["verdict"]["error"]
