"""The judge's own clock against the candidate's events. No torch, no numpy: the orchestrator asks, too."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable

SLACK, SLACK_US = 1.5, 60.0
"""How far the judge's clock may be from the candidate's events, which do not hold all of the wait for a launch."""
LEAST_TRIES = 2
"""One alone may have had a pause in its few calls, which makes the many look fast."""
MOST_S, MOST_TRIES = 0.5, 3
"""So long, and so often, blocks are timed while the clocks do not agree: the machine may be busy."""
ASKING_US = 3000.0
"""What may pass between a question and the first call, and between the last call and the answer. Half of it was seen beside 11 other
candidates; more is the candidate's own."""

Block = Callable[[int], list[float]]
"""Runs so many calls and gives the microseconds of each by events."""


def clocks_agree(wall: dict[str, float]) -> bool:
    """Whether the candidate's events hold about what the judge waited for a call."""
    return wall["candidate"] <= SLACK * wall["events"] + SLACK_US


def by_the_judge(
    eager: Block, ours: Block, count: int, claimed: float, now: Callable[[], float]
) -> dict[str, float]:
    """Microseconds of a candidate's call: how much longer many calls take than few, less what eager's shows that the loop takes.

    Of all blocks the least counts: a pause of the machine only adds. `claimed` is what the candidate's events say in the blocks
    that its speed-up comes from: it may not say more here.
    """
    began, sizes = now(), (max(1, count // 5), count)
    loop, outside = _Least(eager, sizes, now), _Least(ours, sizes, now)
    for tries in itertools.count(1):
        loop.again()
        outside.again()
        beside = max(0.0, loop.call() - loop.events)
        found = {
            "candidate": outside.call() - beside,
            "events": min(outside.events, claimed),
            "loop": beside,
        }
        late = tries >= MOST_TRIES and now() - began > MOST_S
        if late or (tries >= LEAST_TRIES and clocks_agree(found)):
            break
    return found


class _Least:
    """What blocks of both sizes took at the least, in microseconds."""

    def __init__(self, block: Block, sizes: tuple[int, int], now: Callable[[], float]) -> None:
        self._block, self._sizes, self._now = block, sizes, now
        self._took = [math.inf, math.inf]
        self.events = 0.0

    def again(self) -> None:
        for place, size in enumerate(self._sizes):
            start = self._now()
            times = self._block(size)
            took = 1e6 * (self._now() - start)
            if took < self._took[place]:
                self._took[place], self.events = took, statistics.median(times)

    def call(self) -> float:
        few, many = self._took
        asked = ASKING_US + self._sizes[0] * many / self._sizes[1]
        return (many - min(few, asked)) / (self._sizes[1] - self._sizes[0])
