"""The teacher on whole problems: what it writes is right, holds for other shapes, and takes the original's weights.

Each problem costs seconds: there are few, and each is there for something that the others have not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from kernelmill.evaluate.evaluator import Evaluator
from kernelmill.evaluate.options import Options, Pair
from kernelmill.evaluate.verdict import Verdict
from kernelmill.generate.inductor.teacher import GeneratedCandidate, Teacher
from tests.generate.inductor.test_bags import BAGS

pytestmark = pytest.mark.slow

HEAD = """
import torch
import torch.nn as nn
import torch.nn.functional as F

WIDTH = 48
"""
TAIL = """
def get_init_inputs():
    return [WIDTH]
"""
FUSED = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, 2 * width)
        self.norm = nn.LayerNorm(2 * width)

    def forward(self, x):
        return self.norm(F.gelu(self.linear(x)))

def get_inputs():
    return [torch.randn(40, WIDTH)]
"""
HEADS = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.heads = 4
        self.project = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        y = self.project(x).view(batch, length, self.heads, width // self.heads).transpose(1, 2)
        return torch.softmax(y @ y.transpose(-1, -2), dim=-1)

def get_inputs():
    return [0.2 * torch.randn(2, 24, WIDTH)]
"""
CONVOLVED = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(8, width, 3, padding=1), nn.ReLU())

    def forward(self, x):
        pooled = F.max_pool2d(self.layers(x), 2)
        return {"pooled": pooled, "most": [pooled.amax(dim=(2, 3))]}

def get_inputs():
    return [torch.randn(2, 8, 12, 16)]
"""
COUNTING = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x):
        return torch.tanh(self.norm(x))

def get_inputs():
    return [torch.randn(40, WIDTH)]
"""
NUMBERS = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])

    def forward(self, x, pair):
        for block in self.blocks:
            x = torch.minimum(block(x), torch.tensor(0.5))
        return x + pair[0] * pair[1]

def get_inputs():
    return [torch.randn(40, WIDTH), (torch.randn(WIDTH), torch.randn(40, WIDTH))]
"""
ORDERED = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.count = 4

    def forward(self, grid):
        best = torch.topk(grid.transpose(0, 1), self.count, dim=-1)
        return torch.softmax(best.values, dim=-1), best.indices

def get_inputs():
    return [torch.randn(24, WIDTH)]
"""
BUILT = """
class Base(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.make(width)

    def forward(self, x):
        return torch.tanh(self.parts["4"](x * self.scale))

class Model(Base):
    def make(self, width):
        self.scale = (width // 4) ** -0.5
        self.parts = nn.ModuleDict({"4": nn.Linear(width, width)})

def get_inputs():
    return [torch.randn(40, WIDTH)]
"""
SPREAD = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.ConvTranspose1d(8, width, 4, stride=2, padding=1)
        self.each = nn.Conv1d(width, width, 3, padding=1, groups=width)

    def forward(self, x):
        return torch.relu(self.each(self.up(x)))

def get_inputs():
    return [torch.randn(2, 8, 20)]
"""
PROBLEMS = {
    "ordered": ORDERED,
    "built": BUILT,
    "spread": SPREAD,
    "numbers": NUMBERS,
    "fused": FUSED,
    "heads": HEADS,
    "convolved": CONVOLVED,
    "counting": COUNTING,
}
UNWRITABLE = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()

    def forward(self, x):
        return x[: int(x.sum().item()) % 3 + 1]

def get_inputs():
    return [torch.randn(40, WIDTH)]
"""


@pytest.fixture(scope="module")
def teacher() -> Iterator[Teacher]:
    with Teacher(workers=1) as warm:
        yield warm


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    with Evaluator(Options(device="cpu", targets=("sm_90",)), workers=1) as warm:
        yield warm


def written(teacher: Teacher, body: str) -> GeneratedCandidate:
    return asyncio.run(teacher.write(HEAD + body + TAIL))


def judged(evaluator: Evaluator, body: str, code: str) -> Verdict:
    return asyncio.run(evaluator.evaluate(Pair("x", HEAD + body + TAIL, code)))


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name == "counting" else pytest.mark.heavy) for name in PROBLEMS],
)
def test_what_it_writes_is_judged_correct_compiles_and_holds_for_other_shapes(
    teacher: Teacher, evaluator: Evaluator, name: str
) -> None:
    found = written(teacher, PROBLEMS[name])
    assert not found.error
    assert found.extern == []
    assert "torch._inductor" not in found.code
    verdict = judged(evaluator, PROBLEMS[name], found.code)
    assert verdict.verdict == "correct", (verdict.status, verdict.error)
    assert verdict.compile["targets"]["sm_90"]["ok"]
    assert verdict.grade.drop_in == "strict"
    assert not verdict.grade.shape_specialised


def test_a_problem_that_depends_on_its_values_is_refused_with_a_reason(teacher: Teacher) -> None:
    found = written(teacher, UNWRITABLE)
    assert found.code == ""
    assert found.error.startswith("error: ")


def test_a_problem_with_inputs_by_keyword_is_refused_in_plain_words(teacher: Teacher) -> None:
    found = written(
        teacher,
        FUSED.replace("[torch.randn(40, WIDTH)]", "[]")
        + "\ndef get_input_kwargs():\n    return {'x': torch.randn(40, WIDTH)}\n",
    )
    assert found.error == "error: Unwritable: inputs by keyword"


def test_a_problem_that_ends_its_process_costs_that_problem_alone(teacher: Teacher) -> None:
    ended = written(teacher, "import os\nos._exit(0)\n" + FUSED)
    assert ended.error.startswith("crashed: ")
    assert ended.fault
    assert not written(teacher, FUSED).error


def test_a_problem_that_nobody_has_refused_is_told_apart_from_one_that_cannot_be_written(
    teacher: Teacher, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = written(teacher, FUSED.replace("return [torch", "raise MemoryError\n    return [torch"))
    monkeypatch.setitem(teacher._sandbox._settings, "timeout", 0.5)
    late = written(
        teacher, FUSED.replace("return [torch", "__import__('time').sleep(600)\n    return [torch")
    )
    monkeypatch.undo()
    refused = written(teacher, UNWRITABLE)
    found = [(one.error.partition(":")[0], one.fault) for one in (full, late, refused)]
    assert found == [("out_of_memory", True), ("timeout", True), ("error", False)]


@pytest.mark.parametrize("mode", ["mean", pytest.param("max", marks=pytest.mark.heavy)])
def test_bags_with_offsets_are_written_without_a_call_of_the_library_and_judged_correct(
    teacher: Teacher, evaluator: Evaluator, mode: str
) -> None:
    bags = BAGS.replace('"mean"', f'"{mode}"')
    made = asyncio.run(teacher.write(bags))
    assert (made.error, made.extern) == ("", [])
    assert "@triton.jit" in made.code
    verdict = asyncio.run(evaluator.evaluate(Pair("x", bags, made.code)))
    assert verdict.verdict == "correct", (verdict.status, verdict.error, verdict.flags)
    assert verdict.compile["targets"]["sm_90"]["ok"]
