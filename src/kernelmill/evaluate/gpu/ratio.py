"""Estimate a speed-up from timed blocks: a robust ratio, its interval, and when to stop. No torch."""

from __future__ import annotations

import functools
import math
import statistics
from dataclasses import dataclass

import numpy as np

RESAMPLES = 1000


@dataclass
class Ratio:
    """How many times as fast. The interval contains the true ratio in 95 of 100 cases."""

    value: float
    low: float
    high: float


def pair_ratios(baseline: list[list[float]], candidate: list[list[float]]) -> list[float]:
    """One ratio per pair of adjacent blocks: clocks and temperature drift affect both blocks alike."""
    return [statistics.median(b) / statistics.median(c) for b, c in zip(baseline, candidate, strict=True)]


def spread(pairs: list[float]) -> float:
    """Half the relative width of the interval. It decides during a measurement whether to stop."""
    averages = _averages(np.array(pairs))
    cut = _cut(len(pairs))
    return float((averages[-cut] - averages[cut - 1]) / 2 / np.median(averages))


def ratio(
    baseline: list[list[float]], candidate: list[list[float]], between: float = 0.0, seed: int = 0
) -> Ratio:
    """Estimate the ratio from pairs of blocks.

    Pairs of blocks are the samples, because calls within a block do not show what varies between blocks. The
    estimate is the median of the averages of any two pairs. The interval is that of Wilcoxon's signed-rank
    test, so a disturbed block counts no more than another. The interval is at least as wide as that of a
    bootstrap of the pairs' median. `between` is the relative uncertainty of the ratio between two processes,
    however many blocks there are. Its square is added to each side's.
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
    """The rank from either end of the average that bounds the interval.

    The sum of signed ranks is below it in 2.5 % of all cases.
    """
    ways = np.ones(1)
    for rank in range(1, n + 1):
        with_it = np.concatenate([np.zeros(rank), ways])
        ways = np.concatenate([ways, np.zeros(rank)]) + with_it
    below = np.cumsum(ways / ways.sum())
    return max(1, int(np.searchsorted(below, 0.025, side="right")))
