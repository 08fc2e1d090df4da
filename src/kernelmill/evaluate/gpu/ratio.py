"""From timed blocks to a ratio that one can rely on: a robust estimate, its interval, when to stop. No torch."""

from __future__ import annotations

import functools
import math
import statistics
from dataclasses import dataclass

import numpy as np

RESAMPLES = 1000


@dataclass
class Ratio:
    """How many times as fast; the interval holds the true ratio in 95 of 100 cases."""

    value: float
    low: float
    high: float


def pair_ratios(baseline: list[list[float]], candidate: list[list[float]]) -> list[float]:
    """One number for each pair of blocks taken next to each other: they drift together (clocks, temperature)."""
    return [statistics.median(b) / statistics.median(c) for b, c in zip(baseline, candidate, strict=True)]


def spread(pairs: list[float]) -> float:
    """Half the width of the interval, relative: to see during a measurement whether it is enough."""
    averages = _averages(np.array(pairs))
    cut = _cut(len(pairs))
    return float((averages[-cut] - averages[cut - 1]) / 2 / np.median(averages))


def ratio(
    baseline: list[list[float]], candidate: list[list[float]], between: float = 0.0, seed: int = 0
) -> Ratio:
    """Pairs of blocks are the witnesses: calls within a block know nothing of what differs between blocks.

    The estimate is the median of the averages of any two pairs, and the interval that of Wilcoxon's signed ranks: a block
    that something else disturbed does not count for more than another. It is also as wide as that of a bootstrap of the
    pairs' median. `between` is what the ratio of two processes is uncertain by, relative, however many blocks there are:
    its square is added to each side's.
    """
    pairs = np.array(pair_ratios(baseline, candidate))
    averages, cut = _averages(pairs), _cut(len(pairs))
    value = float(np.median(averages))
    drawn = np.median(np.random.default_rng(seed).choice(pairs, (RESAMPLES, len(pairs))), axis=1)
    low, high = (float(limit) for limit in np.quantile(drawn, (0.025, 0.975)))
    below = value - min(low, float(averages[cut - 1]))
    above = max(high, float(averages[-cut])) - value
    return Ratio(
        value, value - math.hypot(below, value * between), value + math.hypot(above, value * between)
    )


def _averages(
    pairs: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    first, second = np.triu_indices(len(pairs))
    return np.sort((pairs[first] + pairs[second]) / 2)


@functools.cache
def _cut(n: int) -> int:
    """Which average from either end bounds the interval: the sum of signed ranks is below it in 2.5 % of all cases."""
    ways = np.ones(1)
    for rank in range(1, n + 1):
        with_it = np.concatenate([np.zeros(rank), ways])
        ways = np.concatenate([ways, np.zeros(rank)]) + with_it
    below = np.cumsum(ways / ways.sum())
    return max(1, int(np.searchsorted(below, 0.025, side="right")))
