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
from kernelmill.generate.inductor.bags import embedding_bag
from kernelmill.generate.inductor.teacher import GeneratedCandidate, Teacher

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
from torch._inductor.lowering import lowerings
from kernelmill.generate.inductor import fake_gpu, worker
from kernelmill.generate.inductor.kernels import Unwritable

def tried(request):
    try:
        worker.handle(request)
    except Exception as error:
        print(type(error).__name__, str(error).split(":")[0])

def failing(request):
    raise request["error"]

written, worker._written = worker._written, failing
tried({"error": TypeError("an unexpected keyword")})
tried({"error": KeyError("mode")})
tried({"error": Unwritable("by keyword")})
tried({"error": RuntimeError("on values")})

def mistaken(x):
    return x.no_such_name

def refusing(x):
    raise NotImplementedError("exp")

worker._written = written
fake_gpu.install()
for lowering in (mistaken, refusing):
    lowerings.update({name: lowering for name in lowerings if str(name).startswith("aten.exp.")})
    tried({"code": worker._WARM_UP})
"""


@pytest.mark.heavy
def test_a_mistake_of_ours_also_inside_the_compilers_lowering_is_told_apart_from_what_cannot_be_written() -> (
    None
):
    done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, timeout=280)
    assert done.stdout.splitlines() == [
        "TeacherFault TypeError",
        "TeacherFault KeyError",
        "Unwritable by keyword",
        "RuntimeError on values",
        "TeacherFault AttributeError",
        "InductorError LoweringException",
    ], done.stderr


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            "error: TeacherFault: TypeError: oh",
            "no candidate, a fault of the teacher's own, please report it: ",
        ),
        ("crashed: killed by SIGSEGV", "no candidate, a fault of the teacher's own, please report it: "),
        ("timeout: timed out after 120.0 s", "no candidate, the teacher ran out of time: "),
        ("out_of_memory: MemoryError: ", "no candidate, the teacher ran out of memory: "),
    ],
)
def test_where_the_teacher_fails_the_row_is_inconclusive_with_no_reward_and_no_feedback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: str, said: str
) -> None:
    async def faulty(*_: object) -> GeneratedCandidate:
        return GeneratedCandidate(error=error, fault=True, seconds=0.1)

    monkeypatch.setattr(Teacher, "write", faulty)
    (tmp_path / "1_Bags.py").write_text(BAGS)
    line = ["synthesize", "--teacher", "inductor", "--device", "cpu", "--workers", "1", "--turns", "2"]
    assert main([*line, "--problems", "1_Bags.py", "-o", "evals.jsonl"]) == 0
    (row,) = map(json.loads, Path("evals.jsonl").read_text().splitlines())
    assert (row["verdict"]["verdict"], row["verdict"]["status"]) == ("inconclusive", "UNSUPPORTED")
    assert (row["reward_masked"], row["verdict"]["feedback"], row["num_turns"]) == (True, "", 1.0)
    assert row["verdict"]["error"] == said + error
