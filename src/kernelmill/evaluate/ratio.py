"""From timed blocks to a ratio that one can rely on: medians, a bootstrap interval, when to stop. No torch."""

from __future__ import annotations

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
    """Half the width of the interval of their mean, relative: to see during a measurement whether it is enough."""
    return float(1.96 * statistics.stdev(pairs) / len(pairs) ** 0.5 / statistics.fmean(pairs))


def ratio(baseline: list[list[float]], candidate: list[list[float]], seed: int = 0) -> Ratio:
    """Pairs of blocks are resampled: calls within a block are no independent witnesses of what differs between blocks.

    With few pairs a bootstrap is too sure of itself, so the interval is also as wide as Student's.
    """
    pairs = np.array(pair_ratios(baseline, candidate))
    n = len(pairs)
    drawn = np.random.default_rng(seed).choice(pairs, (RESAMPLES, n)).mean(1)
    value = float(pairs.mean())
    half = _STUDENT.get(n, 1.96) * float(pairs.std(ddof=1)) / n**0.5
    low, high = (float(limit) for limit in np.quantile(drawn, (0.025, 0.975)))
    return Ratio(value, min(low, value - half), max(high, value + half))


# Quantiles of Student's distribution for n - 1 degrees of freedom, at 97.5 %.
_STUDENT = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26, 11: 2.23, 12: 2.20,
            13: 2.18, 14: 2.16, 15: 2.14, 16: 2.13, 17: 2.12, 18: 2.11, 19: 2.10, 20: 2.09, 25: 2.06, 30: 2.05}  # fmt: skip
