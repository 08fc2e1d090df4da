"""From timed blocks to a ratio that one can rely on: medians, a bootstrap interval, when to stop. No torch."""

from __future__ import annotations

import random
import statistics
from dataclasses import dataclass

RESAMPLES = 400


@dataclass
class Ratio:
    """How many times as fast; the interval holds the true ratio in 95 of 100 cases."""

    value: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2 / self.value


def ratio(baseline: list[list[float]], candidate: list[list[float]], seed: int = 0) -> Ratio:
    """`baseline[i]` and `candidate[i]` are blocks of times taken next to each other.

    Blocks drift together (clocks, temperature), so their ratio is taken pair by pair, and pairs are resampled: calls
    within a block are no independent witnesses of what differs between blocks.
    """
    dice = random.Random(seed)
    pairs = [statistics.median(b) / statistics.median(c) for b, c in zip(baseline, candidate, strict=True)]
    value = statistics.median(pairs)
    drawn = sorted(
        statistics.fmean(
            statistics.median(dice.choices(b, k=len(b))) / statistics.median(dice.choices(c, k=len(c)))
            for b, c in dice.choices(list(zip(baseline, candidate, strict=True)), k=len(pairs))
        )
        for _ in range(RESAMPLES)
    )
    low, high = drawn[int(0.025 * RESAMPLES)], drawn[int(0.975 * RESAMPLES) - 1]
    return Ratio(value, min(low, value), max(high, value))
