"""Every case of the corpus gets a verdict that is right: a sample in every run, all of them among the heavy tests.

`bench/evaluator_quality.py` measures the same with secret seeds, beside a plain check.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from kernelmill.evaluate.evaluator import Evaluator
from kernelmill.evaluate.options import Options, Pair
from kernelmill.evaluate.verdict import Grade
from tests.evaluate.corpus import GRADES, Case, cases

SAMPLE = {
    "A2_overwritten",
    "A3_identity_copy",
    "A7_einsum",
    "B1_memo_by_id",
    "B3_call_count",
    "C1_new_empty",
    "C2_fixed_grid",
    "C6_next_row",
    "C7_fp16_dot",
    "D3_lazy_subclass",
    "D5_patched_clock",
    "E1_allclose",
    "A2_ok_statistics_pass",
    "A3_ok_partials",
    "A7_ok_scalar_ops",
    "B1_ok_config_cache",
    "B3_ok_workspace_by_shape",
    "C1_ok_empty_written",
    "C2_ok_grid_of_meta",
    "C6_ok_padded_buffer",
    "C7_ok_ieee_block_ptr",
    "D3_ok_plain_parameter_subclass",
    "D5_ok_timing_helper",
    "X_ok_by_order",
}
HOLDS: dict[str, Callable[[Grade], bool]] = {
    "torch_fallback": lambda grade: grade.torch_share is not None and grade.torch_share > 0.5,
    "partial": lambda grade: grade.torch_share is not None and 0.05 <= grade.torch_share <= 0.5,
    "fragile": lambda grade: grade.robust is False,
    "seed_only": lambda grade: grade.drop_in == "seed_only",
    "by_order": lambda grade: grade.drop_in == "by_order",
    "shape_specialised": lambda grade: grade.shape_specialised is True,
}


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    with Evaluator(Options(device="cpu", seed=20_240_229), workers=1) as made:
        yield made


def _heavy_unless_sampled(case: Case) -> object:
    return pytest.param(
        case, id=case.name, marks=pytest.mark.slow if case.name in SAMPLE else pytest.mark.heavy
    )


def test_the_sample_is_half_hostile_and_half_honest_and_every_grade_has_a_meaning() -> None:
    sampled = [case for case in cases() if case.name in SAMPLE]
    hostile = [case for case in sampled if case.hostile and "correct" not in case.labels]
    honest = [case for case in sampled if case.labels == {"correct"}]
    assert (len(hostile), len(honest)) == (12, 12)
    assert len({case.pattern for case in hostile}) == 12
    assert set(HOLDS) == GRADES


@pytest.mark.parametrize("case", [_heavy_unless_sampled(case) for case in cases()])
def test_the_verdict_is_one_of_those_that_are_right(case: Case, evaluator: Evaluator) -> None:
    pair = Pair(case.name, case.reference, case.code, case.entry_point)
    verdict = asyncio.run(evaluator.evaluate(pair))
    only_a_gpu_can_tell = case.tier == "gpu"
    right = case.labels | ({"correct"} if only_a_gpu_can_tell else set())
    assert verdict.verdict in right, f"{verdict.status}: {verdict.error}, {verdict.flags}"
    if not case.hostile and "correct" in case.labels:
        assert [flag for flag in verdict.flags if flag.severity == "hard"] == []
    if case.grade is not None and verdict.verdict == "correct" and not only_a_gpu_can_tell:
        assert HOLDS[case.grade](verdict.grade), verdict.grade
