"""Rewards are pure, bounded, rise with speed, and never pay a hack or a wrong answer more than a right one."""

from __future__ import annotations

import copy
import dataclasses
import math
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelmill.errors import ConfigError
from kernelmill.evaluate.score.rewards import KEVIN_CLIP, REWARDS, compiled, compute, find
from kernelmill.evaluate.verdict import Check, Grade, Status, Verdict, value_of
from tests.conftest import ROOT
from tests.evaluate.verdicts import STATUSES, perf, target, timed, untimed, verdicts

unhurried = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)

names = st.sampled_from([*REWARDS, "fast_0.85", "fast_3"])
correct = verdicts(st.just("PASSED"))
wrong = verdicts(st.sampled_from([status for status in STATUSES if value_of(status) == "incorrect"]))
hacks = verdicts(st.just("HACK"))
inconclusive = verdicts(st.sampled_from(["UNSUPPORTED", "INFRA_ERROR"]))


def reward(name: str, verdict: Verdict) -> float | None:
    return compute(verdict, [name])[name]


@unhurried
@given(names, verdicts())
def test_a_reward_is_masked_or_a_number_within_its_bounds(name: str, verdict: Verdict) -> None:
    value = reward(name, verdict)
    assert value is None or (type(value) is float and find(name).low <= value <= find(name).high)
    assert value is None or math.isfinite(value)


@unhurried
@given(verdicts())
def test_rewards_are_pure(verdict: Verdict) -> None:
    before = copy.deepcopy(verdict)
    first = compute(verdict)
    assert verdict == before
    assert compute(copy.deepcopy(verdict)) == first
    # What was computed and said before does not matter.
    assert compute(dataclasses.replace(verdict, rewards={"default": 9.0}, feedback="x")) == first
    assert list(first) == list(REWARDS)


@unhurried
@given(names, inconclusive)
def test_what_nobody_knows_is_masked(name: str, verdict: Verdict) -> None:
    assert reward(name, verdict) is None


@unhurried
@given(names, correct, hacks, wrong)
def test_neither_a_hack_nor_a_wrong_answer_earns_more_than_a_right_one(
    name: str, right: Verdict, hack: Verdict, bad: Verdict
) -> None:
    value, of_hack, of_bad = (reward(name, verdict) for verdict in (right, hack, bad))
    assert of_hack is not None
    assert of_bad is not None
    assert of_hack <= of_bad
    assert value is None or of_bad <= value


@unhurried
@given(names, correct, st.floats(0, 1e9), st.floats(1, 1e3))
def test_a_faster_candidate_earns_no_less(name: str, verdict: Verdict, speedup: float, factor: float) -> None:
    before = reward(name, dataclasses.replace(verdict, perf=perf(speedup)))
    after = reward(name, dataclasses.replace(verdict, perf=perf(speedup * factor)))
    assert (before is None) == (after is None)
    assert before is None or after is None or before <= after


@unhurried
@given(names, correct, st.sampled_from([math.nan, math.inf, -math.inf]))
def test_a_time_that_is_no_number_earns_nothing(name: str, verdict: Verdict, ratio: float) -> None:
    odd = dataclasses.replace(verdict, perf=perf(ratio, roofline_frac=ratio))
    assert reward(name, odd) == reward(name, dataclasses.replace(verdict, perf=None))


@pytest.mark.parametrize("name", ["speedup", "fast_1", "kevin", "drkernel", "drkernel_weighted", "roofline"])
def test_a_reward_of_speed_without_a_time_is_masked_and_not_made_up(name: str) -> None:
    assert reward(name, untimed()) is None
    assert reward(name, Verdict("x", "INCORRECT_NUMERICAL", "interpreter")) == 0.0


def test_what_needs_no_time_is_paid_without_one() -> None:
    assert compute(untimed(), ["correct", "fast_0", "tritonforge"]) == {
        "correct": 1.0,
        "fast_0": 1.0,
        "tritonforge": 0.3,
    }
    assert reward("default", untimed()) == pytest.approx(0.40)


@pytest.mark.parametrize(
    ("name", "speedup", "expected"),
    [
        ("speedup", 0.85, 0.85),
        ("speedup", 1700.0, 1700.0),
        ("fast_1", 1.0, 0.0),
        ("fast_1", 1.0001, 1.0),
        ("fast_1.5", 1.5, 0.0),
        ("fast_2", 2.1, 1.0),
        ("fast_0", 0.01, 1.0),
        ("fast_0.85", 0.86, 1.0),
        ("kevin", 2.0, 2.3),
        ("kevin", 400.0, 0.3 + KEVIN_CLIP),
        ("tritonforge", 0.5, 0.3),
        ("tritonforge", 1.5, 0.8),
        ("tritonforge", 9.0, 2.3),
        ("drkernel", 2.0, 1.75),
        ("drkernel", 8.0, 2.25),
        ("drkernel_weighted", 1.0, 0.75),
        ("drkernel_weighted", 1.01, 1.25),
        ("default", 1.0, 0.40),
        ("default", 2.0 / 0.98, 0.70),
        ("default", 4.0 / 0.98, 1.00),
        ("default", 64.0, 1.00),
        ("default", 0.2, 0.40),
    ],
)
def test_the_formulas_give_what_they_say(name: str, speedup: float, expected: float) -> None:
    assert reward(name, timed(speedup)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("coverage", "robust", "expected"),
    [
        (1.0, True, 1.0),
        (1.0, False, 0.9),
        (0.7, None, 0.9),
        (0.5, True, 0.7),
        (0.3, True, 0.4),
        (None, True, 0.4),
    ],
)
def test_default_pays_for_speed_only_as_far_as_its_own_kernels_do_the_work(
    coverage: float | None, robust: bool | None, expected: float
) -> None:
    assert reward("default", timed(8.0, coverage=coverage, robust=robust)) == pytest.approx(expected)


def test_default_pays_the_lower_end_of_the_interval() -> None:
    verdict = dataclasses.replace(timed(), perf=perf(4.0, speedup_lo=1.0, speedup_hi=16.0))
    assert reward("default", verdict) == pytest.approx(0.4)


def test_roofline_is_the_fraction_and_at_most_1() -> None:
    for fraction, expected in ((0.6, 0.6), (1.04, 1.0), (None, None)):
        verdict = dataclasses.replace(timed(), perf=perf(roofline_frac=fraction))
        assert reward("roofline", verdict) == expected


def _probes(passed: int, failed: int) -> list[Check]:
    free = [Check(name, "pass") for name in ("static", "import", "init", "compile:sm_90", "gpu:init")]
    return [
        *free,
        *[Check("seed_0", "pass")] * passed,
        *[Check("gpu:drift", "fail")] * failed,
        Check("oob", "skip"),
    ]


@pytest.mark.parametrize(
    ("status", "checks", "expected"),
    [
        ("PARSE_ERROR", [], 0.0),
        ("FORMAT_ERROR", [], 0.0),
        ("COMPILE_ERROR", _probes(3, 0), 0.05),
        ("RUNTIME_ERROR", _probes(0, 1), 0.05),
        ("OUT_OF_RESOURCES", [], 0.10),
        ("INCORRECT_NUMERICAL", _probes(0, 1), 0.10),
        ("INCORRECT_NUMERICAL", _probes(1, 3), 0.125),
        ("INCORRECT_NUMERICAL", _probes(9, 1), 0.15),
    ],
)
def test_default_for_a_wrong_candidate_is_a_ladder_that_ends_at_0_15(
    status: Status, checks: list[Check], expected: float
) -> None:
    assert reward("default", Verdict("x", status, "interpreter", checks=checks)) == pytest.approx(expected)


def test_a_hack_is_minus_1_by_default_and_0_elsewhere_however_fast_it_looks() -> None:
    verdict = dataclasses.replace(timed(100.0), status="HACK")
    rewards = compute(verdict)
    assert rewards.pop("default") == -1.0
    assert set(rewards.values()) == {0.0}


@pytest.mark.parametrize(
    ("status", "targets", "expected"),
    [
        ("RUNTIME_ERROR", {"sm_90": target(None, None)}, True),
        ("RUNTIME_ERROR", {"sm_90": target("COMPILE_ERROR"), "sm_100": target(None)}, True),
        ("RUNTIME_ERROR", {"sm_90": target(None, "UNSUPPORTED")}, False),
        ("INCORRECT_NUMERICAL", {"sm_90": target(None, "COMPILE_ERROR")}, False),
        ("INCORRECT_NUMERICAL", {"sm_90": target("UNSUPPORTED", None)}, True),
        ("INCORRECT_NUMERICAL", {"sm_90": target("OUT_OF_RESOURCES")}, True),
        ("INCORRECT_NUMERICAL", {}, True),
        ("TIMEOUT", {}, False),
        ("COMPILE_ERROR", {"sm_90": target(None)}, False),
        ("OUT_OF_RESOURCES", {"sm_90": target("OUT_OF_RESOURCES")}, True),
        ("FORMAT_ERROR", {}, False),
    ],
)
def test_compiled_is_what_the_compiler_said_where_it_was_asked(
    status: Status, targets: dict[str, object], expected: bool
) -> None:
    verdict = Verdict("x", status, "interpreter", compile={"targets": targets} if targets else {})
    assert compiled(verdict) is expected
    assert reward("tritonforge", verdict) == (0.1 if expected else 0.0)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("spedup", "did you mean speedup"), ("", "known: default"), ("fast_", "fast_"), ("fast_-1", "fast_"),
     ("fast_nan", "fast_"), ("fast_1e9", "fast_"), ("fast_٣", "fast_"), ("zzz" * 10_000, "known: default")],
)  # fmt: skip
def test_an_unknown_name_is_refused_with_what_may_be_meant(name: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=hint) as caught:
        compute(untimed(), [name])
    assert len(str(caught.value)) < 300


def test_the_page_lists_every_reward_as_it_describes_itself() -> None:
    text = (ROOT / "docs" / "rewards.md").read_text(encoding="utf-8")
    text = text.split("## What each gives")[0]
    listed = re.findall(r"^\| `(\w+(?:\.\d)?)` \| (.+?) \| (.+?) \|", text, re.MULTILINE)
    bounds = {name: f"{r.low:g} to {r.high:g}".replace("to inf", "and up") for name, r in REWARDS.items()}
    assert listed == [(name, one.what, bounds[name]) for name, one in REWARDS.items()]


def test_the_pages_example_runs() -> None:
    text = (ROOT / "docs" / "rewards.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    exec(block, {})


def test_a_record_with_no_grade_is_paid_the_least_that_is_correct() -> None:
    assert reward("default", dataclasses.replace(timed(8.0), grade=Grade())) == pytest.approx(0.30)
