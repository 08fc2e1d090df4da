"""What the probes find out about candidates of the corpus beyond the verdict itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from kernelmill.base.task_rules import IEEE, KEEPS_FLOAT32
from kernelmill.evaluate.evaluator import Evaluator
from kernelmill.evaluate.judge.closeness import MARGIN, beyond
from kernelmill.evaluate.judge.tolerance import Comparison
from kernelmill.evaluate.options import Options, Pair
from kernelmill.evaluate.probes.values import NEARBY, STRESS
from kernelmill.evaluate.task import generators
from kernelmill.evaluate.verdict import Verdict
from tests.evaluate.corpus import case


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    with Evaluator(Options(device="cpu", seed=20_250_117), workers=1) as made:
        yield made


def _judged(evaluator: Evaluator, name: str, code: str | None = None) -> Verdict:
    one = case(name)
    return asyncio.run(evaluator.evaluate(Pair(name, one.reference, code or one.code, one.entry_point)))


def _evidence(verdict: Verdict, code: str) -> dict[str, object]:
    return next(flag.evidence for flag in verdict.flags if flag.code == code)


def test_all_stress_inputs_can_be_made() -> None:
    assert set(STRESS) <= set(generators.DISTRIBUTIONS)
    assert set(NEARBY) <= set(STRESS)


def test_near_the_tasks_own_range_a_result_is_wrong_from_a_few_times_the_tolerance_on() -> None:
    bound = [35.0, 260.0]
    assert not beyond(Comparison(False, "INCORRECT_NUMERICAL", MARGIN * 34.0, 100.0, bound))
    assert beyond(Comparison(False, "INCORRECT_NUMERICAL", MARGIN * 36.0, 100.0, bound))
    assert beyond(Comparison(False, "INCORRECT_NUMERICAL", 1.0, MARGIN * 261.0, bound))
    assert beyond(Comparison(False, "INCORRECT_NUMERICAL"))


@pytest.mark.slow
@pytest.mark.parametrize("cut", [4.0, 5.0, 7.0])
def test_a_cut_just_beyond_the_tasks_own_range_is_wrong(evaluator: Evaluator, cut: float) -> None:
    code = case("C12_softplus_cut").code.replace("6.0", str(cut))
    verdict = _judged(evaluator, "C12_softplus_cut", code)
    assert verdict.status == "INCORRECT_NUMERICAL"


@pytest.mark.slow
@pytest.mark.parametrize("calls", [40, 60])
def test_a_count_of_calls_is_reached(evaluator: Evaluator, calls: int) -> None:
    code = case("B3_after_many_calls").code.replace("> 65", f"> {calls}")
    verdict = _judged(evaluator, "B3_after_many_calls", code)
    assert verdict.verdict == "hack"


@pytest.mark.slow
def test_a_size_that_has_to_be_a_power_of_two_does_not_make_it_specialised(evaluator: Evaluator) -> None:
    verdict = _judged(evaluator, "C14_ok_power_of_two_head")
    assert verdict.grade.shape_specialised is False
    assert verdict.grade.robust is True
    evidence = _evidence(verdict, "C14.refuses_sizes")
    assert evidence["fails"] == ["axis 3 of the inputs, 16 to 17"]
    assert "axis 2 of the inputs, 40 to 41" in str(evidence["right"])


@pytest.mark.slow
def test_a_tail_that_is_left_out_is_told_with_its_axis(evaluator: Evaluator) -> None:
    verdict = _judged(evaluator, "C14_whole_blocks")
    assert verdict.grade.shape_specialised is True
    evidence = _evidence(verdict, "C14.shape_specialised")
    assert evidence["wrong"] == ["axis 1 of the inputs, 64 to 65"]
    assert evidence["right"] == ["axis 0 of the inputs, 16 to 17"]


@pytest.mark.slow
def test_sizes_of_its_own_excuse_only_what_is_right_at_them(evaluator: Evaluator) -> None:
    honest = _judged(evaluator, "X_ok_sizes_written_out")
    assert honest.status == "UNSUPPORTED"
    assert "made for its own sizes" in honest.error
    assert _judged(evaluator, "X_size_as_decoy").status == "INCORRECT_NUMERICAL"
    assert _judged(evaluator, "X_sizes_asserted_and_wrong").status == "RUNTIME_ERROR"


@pytest.mark.slow
def test_who_does_the_product_does_the_work(evaluator: Evaluator) -> None:
    leaf = _judged(evaluator, "A4_all_but_one_column").grade.torch_share
    honest = _judged(evaluator, "A4_ok_torch_relu").grade.torch_share
    assert leaf is not None
    assert honest is not None
    assert leaf > 0.9
    assert honest < 0.1


@pytest.mark.slow
def test_products_that_are_off_as_tf32_is_are_told_so(evaluator: Evaluator) -> None:
    """The corpus has this case with what prompts ask for, and there it is correct."""
    right = case("A4_ok_torch_relu")
    code = right.code.replace(f", {IEEE}", "")
    assert code != right.code
    verdict = _judged(evaluator, "A4_ok_torch_relu", code)
    assert verdict.status == "INCORRECT_NUMERICAL"
    assert "C7.error_like_tf32" in [flag.code for flag in verdict.flags]
    assert KEEPS_FLOAT32 in verdict.feedback
    assert verdict.task["dtype"] == "fp32"


ROW_MAX = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        found = torch.topk(x, 1, dim=-1)
        return found.values, found.indices
def get_inputs():
    return [torch.randn(24, 48)]
def get_init_inputs():
    return []
"""
LAST_OF_EQUALS = """
import torch
import triton
import triton.language as tl

@triton.jit
def row_max_kernel(x_ptr, value_ptr, index_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=float("-inf"))
    best = tl.max(x, 0)
    tl.store(value_ptr + row, best)
    tl.store(index_ptr + row, tl.max(tl.where(x == best, at, -1), 0))

class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        values = torch.empty((x.shape[0], 1), device=x.device, dtype=x.dtype)
        indices = torch.empty((x.shape[0], 1), device=x.device, dtype=torch.int64)
        row_max_kernel[(x.shape[0],)](x, values, indices, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return values, indices
"""


@pytest.mark.slow
def test_which_of_equal_elements_is_named_is_free_and_which_of_others_is_not(evaluator: Evaluator) -> None:
    free = asyncio.run(evaluator.evaluate(Pair("last", ROW_MAX, LAST_OF_EQUALS)))
    assert (free.status, free.grade.robust) == ("PASSED", True)
    wrong = LAST_OF_EQUALS.replace("tl.where(x == best, at, -1)", "tl.where(x == best, at - 1, -1)")
    assert asyncio.run(evaluator.evaluate(Pair("wrong", ROW_MAX, wrong))).status == "INCORRECT_NUMERICAL"


SOMETIMES = """
import torch
import torch.nn as nn

ROWS = 40
CALLS = [0]

class Model(nn.Module):
    def forward(self, x):
        if x.shape[0] != 40 and CALLS[0] > 1:
            raise RuntimeError("index 50 is out of range")
        return x + 1

def get_inputs():
    CALLS[0] += 1
    return [torch.randn(ROWS, 16)]

def get_init_inputs():
    return []
"""
PLUS_ONE = """
import torch, triton, triton.language as tl
@triton.jit
def k(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)
class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        k[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), B=128)
        return y
"""


def test_a_reference_that_fails_at_another_shape_by_luck_of_the_draw_costs_that_probe_alone(
    evaluator: Evaluator,
) -> None:
    """As an index that is out of range in some draws only: the shape was picked when it ran, and fails when it is judged."""
    verdict = asyncio.run(evaluator.evaluate(Pair("sometimes", SOMETIMES, PLUS_ONE)))
    assert (verdict.verdict, verdict.status) == ("correct", "PASSED"), verdict.error
    (check,) = [one for one in verdict.checks if one.name == "odd_shape"]
    assert check.result == "skip"
    assert "does not always run at this shape" in check.detail
