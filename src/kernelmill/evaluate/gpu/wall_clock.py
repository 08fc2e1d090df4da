"""Check the candidate's CUDA events against the judge's own clock.

No torch, no numpy: the orchestrator imports it.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable

SLACK, SLACK_US = 1.5, 60.0
"""Tolerance between the judge's clock and the candidate's events, which do not include all of the launch
latency."""
LEAST_TRIES = 2
"""A single try may have had a pause in its short block, which makes the long block look fast."""
MOST_S, MOST_TRIES = 0.5, 3
"""Keep timing blocks for at least this many seconds and tries while the clocks disagree: the machine may be
busy."""
ASKING_US = 3000.0
"""Allowance for the time between a request and the first call, and between the last call and the answer. Half
of it was seen with 11 other candidates running; anything above it counts as the candidate's own."""

Block = Callable[[int], list[float]]
"""Runs this many calls and returns the microseconds of each, by events."""


def clocks_agree(wall: dict[str, float]) -> bool:
    """Whether the candidate's events account for about as long as the judge waited for a call."""
    return wall["candidate"] <= SLACK * wall["events"] + SLACK_US


def by_the_judge(
    eager: Block, ours: Block, count: int, claimed: Callable[[], float], now: Callable[[], float]
) -> dict[str, float]:
    """Measure a candidate's call by the judge's clock, in microseconds.

    A call's time is the difference between a long and a short block, less the loop overhead that eager shows.
    The minimum over all blocks counts, because a pause of the machine only adds time. `claimed` returns what
    the candidate's events say in the blocks that its latency comes from; its events here may not count for
    more.
    """
    began, sizes = now(), (max(1, count // 5), count)
    loop, outside = _Least(eager, sizes, now), _Least(ours, sizes, now)
    for tries in itertools.count(1):
        loop.again()
        outside.again()
        beside = max(0.0, loop.call() - loop.events)
        found = {
            "candidate": outside.call() - beside,
            "events": min(outside.events, claimed()),
            "loop": beside,
        }
        late = tries >= MOST_TRIES and now() - began > MOST_S
        if late or (tries >= LEAST_TRIES and clocks_agree(found)):
            break
    return found


class _Least:
    """The shortest time that blocks of either size took, in microseconds."""

    def __init__(self, block: Block, sizes: tuple[int, int], now: Callable[[], float]) -> None:
        self._block, self._sizes, self._now = block, sizes, now
        self._took = [math.inf, math.inf]
        self.events = 0.0

    def again(self) -> None:
        for index, size in enumerate(self._sizes):
            start = self._now()
            times = self._block(size)
            took = 1e6 * (self._now() - start)
            if took < self._took[index]:
                self._took[index], self.events = took, statistics.median(times)

    def call(self) -> float:
        few, many = self._took
        asked = ASKING_US + self._sizes[0] * many / self._sizes[1]
        return (many - min(few, asked)) / (self._sizes[1] - self._sizes[0])
