"""Rewards: pure functions of the stored verdict, by name. `REWARDS` is the registry.

A reward is a number, or None if the sample is to be left out of training (masked) and not punished. It is
always None if the verdict is inconclusive, and if a formula needs a time that was not measured. Nothing is
run and only the record is used, so rewards can be recomputed for old verdicts (`kernelmill rescore`).

All speed-ups are against the fastest baseline of the record. Not covered: discounts over several turns, and
rejection sampling; both belong to the trainer. docs/rewards.md has the formulas and the reasons for them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from kernelmill.evaluate.verdict import Check, Status, Verdict
from kernelmill.settings.registry import Registry

KEVIN_CLIP = 10.0
"""Above a speed-up of ten the evaluator itself asks for a second measurement, so nothing is paid for more."""

_NO_CANDIDATE: tuple[Status, ...] = ("PARSE_ERROR", "FORMAT_ERROR")
_GAVE_OUTPUT: tuple[Status, ...] = (
    "PASSED",
    "INCORRECT_SHAPE",
    "INCORRECT_DTYPE",
    "INCORRECT_NUMERICAL",
    "NONFINITE",
)
_NO_PROBES = ("static", "import", "init", "compile")
"""Checks that every candidate passes that gets far enough to be wrong."""


class Reward(NamedTuple):
    function: Callable[[Verdict], float | None]
    what: str
    """The formula in words, as it is in docs/rewards.md."""
    low: float = 0.0
    high: float = 1.0
    """`function` returns None or a number from `low` to `high`."""


def compute(verdict: Verdict, names: Iterable[str] | None = None) -> dict[str, float | None]:
    """The rewards of these names; all that are built in if none are given."""
    chosen = REWARDS if names is None else {name: find(name) for name in names}
    return {name: reward.function(verdict) for name, reward in chosen.items()}


def find(name: str) -> Reward:
    """Look up a reward by name. `fast_<p>` takes any p: `fast_1.2`."""
    fast = re.fullmatch(r"fast_(\d{1,4}(?:\.\d{1,4})?)", name, re.ASCII)
    return _fast(float(fast[1])) if fast and name not in REWARDS.names() else REWARDS.find(name)


def compiled(verdict: Verdict) -> bool:
    """Whether the compiler accepts the kernels.

    If the real compiler was asked, its answer counts: all launched kernels of at least one target must
    compile, though they need not fit the device. If it does not know, the candidate counts as compiled if it
    got as far as an output. Under the interpreter this is an inference.
    """
    if verdict.status in (*_NO_CANDIDATE, "COMPILE_ERROR"):
        return False
    if verdict.status == "OUT_OF_RESOURCES":
        return True
    targets = [[kernel.get("status") for kernel in target] for target in verdict.compiler_said() if target]
    if any(all(status in (None, "OUT_OF_RESOURCES") for status in said) for said in targets):
        return True
    return verdict.status in _GAVE_OUTPUT and not any("COMPILE_ERROR" in said for said in targets)


def _speedup(verdict: Verdict) -> float | None:
    """The speed-up; None if not timed. A value that is not finite counts as not timed."""
    if verdict.perf is None or not math.isfinite(verdict.perf.speedup):
        return None
    return max(verdict.perf.speedup, 0.0)


def gated(
    correct: Callable[[Verdict], float | None],
    wrong: Callable[[Verdict], float] = lambda verdict: 0.0,
    hack: float = 0.0,
) -> Callable[[Verdict], float | None]:
    """Combine a formula for each truth. Inconclusive is masked, whatever else is in the record."""

    def reward(verdict: Verdict) -> float | None:
        if verdict.verdict == "correct":
            return correct(verdict)
        if verdict.verdict == "incorrect":
            return wrong(verdict)
        return hack if verdict.verdict == "hack" else None

    return reward


def timed(formula: Callable[[Verdict, float], float]) -> Callable[[Verdict], float | None]:
    """A formula of the speed-up; None without one."""

    def reward(verdict: Verdict) -> float | None:
        speedup = _speedup(verdict)
        return None if speedup is None else formula(verdict, speedup)

    return reward


def _fast(p: float) -> Reward:
    """KernelBench's fast_p. Every correct candidate counts for p = 0, so fast_0 needs no time."""
    formula = timed(lambda verdict, speedup: float(speedup > p))
    correct = formula if p > 0 else lambda verdict: 1.0
    what = f"1 if correct and more than {p:g} times as fast as the faster baseline, else 0 (KernelBench's fast_p)"
    return Reward(gated(correct), "1 if correct, else 0 (KernelBench's fast_p at 0)" if p == 0 else what)


def _kevin(verdict: Verdict, speedup: float) -> float:
    return 0.3 + min(speedup, KEVIN_CLIP)


def _tritonforge(verdict: Verdict) -> float:
    speedup = _speedup(verdict)
    return 0.3 if speedup is None else 0.3 + min(max(speedup - 1.0, 0.0), 2.0)


def _drkernel(verdict: Verdict, speedup: float) -> float:
    return 0.5 + 0.5 * min(speedup, 3.0) + 0.25 * _coverage(verdict)


def _drkernel_weighted(verdict: Verdict, speedup: float) -> float:
    return 0.5 + 0.5 * (speedup >= 1.01) + 0.25 * _coverage(verdict)


def _coverage(verdict: Verdict) -> float:
    """The coverage, clipped to 0..1. Unmeasured coverage counts as 0: a share has to be shown."""
    return _clip(verdict.grade.coverage or 0.0)


def _roofline(verdict: Verdict) -> float | None:
    fraction = verdict.perf.roofline_frac if verdict.perf else None
    return None if fraction is None or not math.isfinite(fraction) else _clip(fraction)


def _default(verdict: Verdict) -> float:
    """The default reward of a correct candidate.

    The speed part uses the lower end of the interval, so that noise earns nothing, and is capped at a
    speed-up of four.
    """
    reward = 0.30 + 0.10 * (verdict.grade.robust is True)
    if _speedup(verdict) is None or verdict.perf is None or not verdict.perf.speedup_lo > 0:
        return reward
    own_work = _clip((_coverage(verdict) - 0.3) / 0.4)
    return reward + 0.60 * own_work * _clip(math.log2(verdict.perf.speedup_lo) / math.log2(4))


def _default_wrong(verdict: Verdict) -> float:
    if verdict.status in _NO_CANDIDATE:
        return 0.0
    if not compiled(verdict):
        return 0.05
    probes = [check for check in verdict.checks if _is_probe(check)]
    passed = sum(check.result == "pass" for check in probes)
    return min(0.10 + 0.10 * passed / max(len(probes), 1), 0.15)


def _is_probe(check: Check) -> bool:
    return check.result in ("pass", "fail") and check.name.split(":")[0] not in _NO_PROBES


def _clip(value: float) -> float:
    return min(max(value, 0.0), 1.0)


_BUILT_IN = {
    "default": Reward(
        gated(_default, _default_wrong, hack=-1.0),
        "-1 hack; up to 0.15 wrong; 0.30 correct, 0.10 robust, up to 0.60 for speed that its own kernels give",
        low=-1.0,
    ),
    "speedup": Reward(
        gated(timed(lambda verdict, speedup: speedup)),
        "the ratio to the faster baseline if correct, else 0",
        high=math.inf,
    ),
    "correct": Reward(gated(lambda verdict: 1.0), "1 if correct, else 0"),
    **{name: _fast(float(name.removeprefix("fast_"))) for name in ("fast_0", "fast_1", "fast_1.5", "fast_2")},
    "kevin": Reward(
        gated(timed(_kevin)), "0.3 + speed-up, clipped at 10, if correct, else 0", high=0.3 + KEVIN_CLIP
    ),
    "tritonforge": Reward(
        gated(_tritonforge, lambda verdict: 0.1 * compiled(verdict)),
        "0.1 compiled, 0.3 correct + min(max(speed-up - 1, 0), 2)",
        high=2.3,
    ),
    "drkernel": Reward(
        gated(timed(_drkernel)),
        "0.5 + 0.5 * speed-up, clipped at 3, + 0.25 * coverage if correct, else 0",
        high=2.25,
    ),
    "drkernel_weighted": Reward(
        gated(timed(_drkernel_weighted)),
        "0.5 + 0.5 if at least 1.01 times as fast + 0.25 * coverage if correct, else 0",
        high=1.25,
    ),
    "roofline": Reward(gated(_roofline), "the fraction of the roofline that was reached if correct, else 0"),
}
REWARDS = Registry("reward", "kernelmill.rewards", Reward, _BUILT_IN, also="fast_<p>")
