"""Reward functions for verl.

    reward.custom_reward_function.path=pkg://kernelmill.rl.verl
    reward.custom_reward_function.name=compute_score_async       or compute_score
    reward.reward_manager.name=naive
    +reward.custom_reward_function.reward_kwargs.url=http://...  and any other field of `ClientOptions`

`compute_scores` is for older verl with the reward manager `batch`, whose settings have no `reward.` prefix.

The rows have the reference's source as `reward_model.ground_truth`.

verl cannot leave a sample out: a score must be a number, and NaN would spoil the whole group. A masked sample
therefore gets the number that moves the policy least: its problem's mean score. `compute_scores` sees the
whole batch and uses the mean of the sample's group, which does not change that mean and gives the sample no
advantage. `compute_score` sees one sample and uses the mean that this process has seen for the problem, else
for all problems, else 0. `masked` in the score's record marks such a number. Other arguments that verl passes
(`reward_router_address`) are ignored. If the service cannot be reached, the functions raise: a failure is
never a score. Does not import verl.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from kernelmill.rl import shared
from kernelmill.rl.client import Ask, Reward
from kernelmill.rl.completions import mean

Score = dict[str, float | str]
_REMEMBERED = 10_000
"""The maximum number of problems whose scores are kept."""


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, Any] | None = None,
    **options: Any,
) -> Score:
    """Score one sample, blocking: verl calls it in a thread."""
    found = shared.client(**shared.ours(options)).grade(*_ask(solution_str, ground_truth, extra_info))
    return _scored(found, ground_truth)


async def compute_score_async(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, Any] | None = None,
    **options: Any,
) -> Score:
    """Score one sample as a coroutine, for verl's reward loop."""
    found = await shared.grade(_ask(solution_str, ground_truth, extra_info), **shared.ours(options))
    return _scored(found, ground_truth)


def compute_scores(
    data_sources: Sequence[str],
    solution_strs: Sequence[str],
    ground_truths: Sequence[str],
    extra_infos: Sequence[Mapping[str, Any] | None],
    **options: Any,
) -> list[Score]:
    """Score a whole batch, for the reward manager `batch` of older verl."""
    asks = [_ask(*one) for one in zip(solution_strs, ground_truths, extra_infos, strict=True)]
    found = shared.client(**shared.ours(options)).grade_many(asks)
    groups: dict[str, list[float | None]] = {}
    for ask, one in zip(asks, found, strict=True):
        groups.setdefault(ask.reference, []).append(one.reward)
        _seen.add(ask.reference, one.reward)
    # If no reward in a group is known, all are masked and get the same number: no advantage.
    return [
        _record(one, mean(groups[ask.reference]))
        for ask, one in zip(asks, found, strict=True)
    ]  # fmt: skip


class _Seen:
    """The mean score of each problem and of all, over what this process has scored."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._problems: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self._all = (0.0, 0)

    def add(self, problem: str, reward: float | None) -> None:
        if reward is None:
            return
        with self._lock:
            total, count = self._problems.pop(problem, (0.0, 0))
            self._problems[problem] = total + reward, count + 1
            self._all = self._all[0] + reward, self._all[1] + 1
            while len(self._problems) > _REMEMBERED:
                self._problems.popitem(last=False)

    def mean(self, problem: str) -> float:
        with self._lock:
            total, count = self._problems.get(problem, self._all)
            return total / count if count else 0.0


_seen = _Seen()


def _ask(solution: str, reference: str, extra: Mapping[str, Any] | None) -> Ask:
    return Ask(reference, solution, (extra or {}).get("entry_point"))


def _scored(found: Reward, problem: str) -> Score:
    _seen.add(problem, found.reward)
    return _record(found, _seen.mean(problem))


def _record(found: Reward, neutral: float) -> Score:
    """Build a record. Its keys are the same for every sample, because verl makes columns of them."""
    return {
        "score": neutral if found.reward is None else found.reward,
        "masked": float(found.masked),
        "correct": float(found.verdict == "correct"),
        "status": found.status or "UNAVAILABLE",
    }
