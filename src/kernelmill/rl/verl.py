"""Reward functions for verl.

    reward.custom_reward_function.path=pkg://kernelmill.rl.verl
    reward.custom_reward_function.name=compute_score_async       or compute_score; with reward.reward_manager.name=naive
    +reward.custom_reward_function.reward_kwargs.url=http://...  and whatever else `ClientOptions` knows

`compute_scores` is for a verl that still has the reward manager `batch`, whose settings have no `reward.` before them.

The rows have the reference's source as `reward_model.ground_truth`.

verl has no way to leave a sample out: a score must be a number, and NaN would spoil the whole group. So a masked sample gets
the number that moves the policy least: the mean of the scores that its problem has. `compute_scores` sees the whole batch
and takes the mean of the sample's own group, which leaves the group's mean as it is and gives the sample no advantage.
`compute_score` sees one sample and takes the mean of what this process has seen for the problem, else of all problems, else 0.
What verl passes beside that (`reward_router_address`) is left alone. `masked` in the score's record says that it is such a number. Where the service cannot be reached they raise: a fault is never
a score. Needs no verl to be imported.
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
"""Problems whose scores are remembered."""


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, Any] | None = None,
    **options: Any,
) -> Score:
    """One sample. It blocks: verl calls it in a thread."""
    found = shared.client(**shared.ours(options)).grade(*_ask(solution_str, ground_truth, extra_info))
    return _scored(found, ground_truth)


async def compute_score_async(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, Any] | None = None,
    **options: Any,
) -> Score:
    """The same for verl's reward loop, which awaits coroutines."""
    found = await shared.grade(_ask(solution_str, ground_truth, extra_info), **shared.ours(options))
    return _scored(found, ground_truth)


def compute_scores(
    data_sources: Sequence[str],
    solution_strs: Sequence[str],
    ground_truths: Sequence[str],
    extra_infos: Sequence[Mapping[str, Any] | None],
    **options: Any,
) -> list[Score]:
    """A whole batch, for the reward manager `batch` of older verl."""
    asks = [_ask(*one) for one in zip(solution_strs, ground_truths, extra_infos, strict=True)]
    found = shared.client(**shared.ours(options)).grade_many(asks)
    groups: dict[str, list[float | None]] = {}
    for ask, one in zip(asks, found, strict=True):
        groups.setdefault(ask.reference, []).append(one.reward)
        _seen.add(ask.reference, one.reward)
    # Where nothing is known of a group, all of it is masked, and all get the same: no advantage.
    return [
        _record(one, _or_zero(mean(groups[ask.reference])))
        for ask, one in zip(asks, found, strict=True)
    ]  # fmt: skip


class _Seen:
    """The mean score of each problem and of all, as far as this process has seen them."""

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
    """The same keys for every sample: verl makes columns of them."""
    return {
        "score": neutral if found.reward is None else found.reward,
        "masked": float(found.masked),
        "correct": float(found.verdict == "correct"),
        "status": found.status or "UNAVAILABLE",
    }


def _or_zero(number: float | None) -> float:
    return 0.0 if number is None else number
