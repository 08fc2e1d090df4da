"""A wrong output is described by its shapes, the share that is wrong, by how much, and what the wrong places have in common."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator

import pytest
import torch

from kernelmill.evaluate.evaluator import Evaluator
from kernelmill.evaluate.judge.differences import describe
from kernelmill.evaluate.judge.tolerance import IEEE, compare
from kernelmill.evaluate.options import Options, Pair
from kernelmill.evaluate.task.values import Call
from kernelmill.evaluate.verdict import SLICE, Verdict

Change = Callable[[torch.Tensor], object]


def described(change: Change, *shape: int) -> dict[str, object]:
    right = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    got = right.clone()
    change(got)
    found = compare(got, right.double(), right)
    assert not found.ok
    return describe(got, right.double(), right, found, Call([right]), IEEE)


def _set(*index: object) -> Change:
    return lambda t: t.__setitem__(index, 9.0)


def _flat(index: object) -> Change:
    return lambda t: t.view(-1).__setitem__(index, 9.0)


WHERE: dict[str, tuple[Change, tuple[int, ...], list[str]]] = {
    "a tail that no tile covers": (
        _set(..., slice(96, None)),
        (5, 100),
        ["axis 1 (size 100): index 96 to the end; 96 is a multiple of 32, the last tile is partial"],
    ),
    "one row": (_set(3), (8, 16), ["axis 0 (size 8): index 3"]),
    "the second tile": (
        _set(..., slice(64, 128)),
        (3, 256),
        ["axis 1 (size 256): index 64 to 127; 64 is a multiple of 64, a tile boundary"],
    ),
    "all but the first tile of rows": (
        _set(slice(0, 16)),
        (40, 6),
        ["axis 0 (size 40): index 0 to 15; 16 is a multiple of 16, a tile boundary"],
    ),
    "every second column": (_set(..., slice(1, None, 2)), (4, 64), ["axis 1 (size 64): every index i with i % 2 = 1"]),
    "both edges": (
        lambda t: (t[32:].fill_(9.0), t[:, 48:].fill_(9.0)),
        (40, 50),
        [
            "axis 0 (size 40): index 32 to the end; 32 is a multiple of 32, the last tile is partial",
            "axis 1 (size 50): index 48 to the end; 48 is a multiple of 16, the last tile is partial",
        ],
    ),
    "a flat tail": (
        _flat(slice(896, None)),
        (10, 99),
        ["elements 896 to the end in row-major order; 896 is a multiple of 128, the last tile is partial"],
    ),
    "everything": (lambda t: t.mul_(1.5), (6, 7), ["everywhere"]),
    "one batch's corner": (
        _set(2, slice(0, 8), slice(0, 4)),
        (4, 32, 32),
        [
            "only in axis 0 (size 4): index 2",
            "only in axis 1 (size 32): index 0 to 7; 8 is a multiple of 8, a tile boundary",
            "only in axis 2 (size 32): index 0 to 3; 4 is a multiple of 4, a tile boundary",
        ],
    ),
    "here and there": (_flat([3, 77, 200, 431, 610, 855, 901]), (32, 32), ["scattered: no axis and no tile boundary"]),
    "NaN in a column": (lambda t: t[:, 5].fill_(float("nan")), (8, 16), ["axis 1 (size 16): index 5"]),
}  # fmt: skip


@pytest.mark.parametrize("name", WHERE)
def test_wrong_places_are_told_by_the_axis_and_tile_that_they_line_up_with(name: str) -> None:
    change, shape, where = WHERE[name]
    assert described(change, *shape)["where"] == where


def test_share_error_shapes_and_a_few_neighbours_are_told() -> None:
    found = described(_set(1, slice(90, None)), 4, 100)
    assert (found["wrong"], found["of"]) == (10, 400)
    assert found["inputs"] == ["float32[4, 100]"]
    assert found["output"] == "float32[4, 100]"
    assert found["at"] == [1, 90]
    assert found["got"] == [9.0] * SLICE
    expected = found["expected"]
    assert isinstance(expected, list)
    assert len(expected) == SLICE
    assert isinstance(most := found["max_abs"], float)
    assert most >= max(9.0 - value for value in expected)


def test_of_integers_and_in_pieces_the_same_is_found() -> None:
    right = torch.arange(3 << 20).reshape(3, -1)
    got = right.clone()
    got[1:, 1000:] = -1
    found = compare(got, right, right)
    told = describe(got, right, right, found, Call([]), IEEE)
    assert told["wrong"] == 2 * ((1 << 20) - 1000)
    assert told["where"][0].startswith("axis 0 (size 3): index 1 to the end")


@pytest.mark.parametrize("count", [1, 2, 15, 31])
def test_of_a_small_output_no_neighbours_are_told(count: int) -> None:
    found = described(_flat(slice(None)), count)
    assert "expected" not in found
    assert "got" not in found


TASK = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.linspace(3.25, 7.75, 120).sin())

    def forward(self, x):
        return x * 2, self.table.expand(2, 120) * 1.0

def get_inputs():
    return [torch.randn(6, 100)]

def get_init_inputs():
    return []
"""
KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl

@triton.jit
def double(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) * 2, mask=i < n)

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.zeros(120))

    def forward(self, x):
        x = x.contiguous()
        y = torch.zeros_like(x)
        n = x.numel() // 64 * 64 if TAIL else x.numel()
        double[(triton.cdiv(x.numel(), 64),)](x, y, n, BLOCK=64)
        return y, TABLE
"""


@pytest.fixture(scope="module")
def judge() -> Iterator[Callable[[str, str], Verdict]]:
    with Evaluator(Options(device="cpu", targets=()), workers=1) as evaluator:

        def judged(tail: str, table: str) -> Verdict:
            code = KERNEL.replace("TAIL", tail).replace("TABLE", table)
            return asyncio.run(evaluator.evaluate(Pair("1", TASK, code)))

        yield judged


def test_a_repair_turn_hears_where_it_is_wrong(judge: Callable[[str, str], Verdict]) -> None:
    verdict = judge("True", "self.table.expand(2, 120) * 1.0")
    assert verdict.status == "INCORRECT_NUMERICAL"
    text = verdict.feedback
    assert "tried with inputs float32[6, 100]; the output asked for is float32[6, 100]" in text
    assert "24 of 600 elements are wrong (0.04 of all), largest absolute error" in text
    assert (
        "wrong: elements 576 to the end in row-major order; 576 is a multiple of 64, the last tile is partial"
        in text
    )
    assert re.search(r"from \[5, 76\] on, along the last axis: expected( \S+){4}; got 0 0 0 0", text)
    assert len(text.splitlines()) < 40


@pytest.mark.parametrize("table", ["torch.zeros(2, 120)", "torch.zeros(2, 120) * float('nan')"])
def test_of_an_output_that_never_changes_no_value_is_told(
    judge: Callable[[str, str], Verdict], table: str
) -> None:
    verdict = judge("False", table)  # hostile: it wants to hear the table
    assert verdict.verdict == "incorrect"
    assert verdict.task["constant_outputs"] == [1]
    assert "240 of 240 elements are wrong" in verdict.feedback
    told = verdict.to_json()
    right = torch.linspace(3.25, 7.75, 120).sin().tolist()
    texts = [text for v in right for text in (f"{v:.4g}", f"{v:.5g}") if len(text.lstrip("-0.")) >= 4]
    assert len(texts) > 200
    assert not [text for text in texts if text in told]  # fewer digits may be those of a time


def test_feedback_tells_no_seed_and_a_check_no_more_than_a_few_values(
    judge: Callable[[str, str], Verdict],
) -> None:
    wrong = judge("False", "(x.sum() * 0 + self.table).expand(2, 120) + y.reshape(5, 120)[:2]")
    seeds = [check.seed for check in wrong.checks if check.seed is not None]
    assert seeds
    assert not [seed for seed in [*seeds, wrong.task["seed"]] if str(seed) in wrong.feedback]
    told = [check.differs or {} for check in wrong.checks]
    assert all(len(one.get(side, [])) <= SLICE for one in told for side in ("expected", "got"))
