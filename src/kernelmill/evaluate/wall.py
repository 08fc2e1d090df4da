"""The judge's own clock against the candidate's events. No torch, no numpy: the orchestrator asks, too."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable

SLACK, SLACK_US = 1.5, 60.0
"""How far the judge's clock may be from the candidate's events, which do not hold all of the wait for a launch."""
MOST_S = 0.5
"""So long blocks are timed while the clocks do not agree: the machine may be busy."""

_AT_LEAST = 2
"""So many of eager's blocks come first: one with a pause in it would excuse a candidate."""

Block = Callable[[], list[float]]
"""Runs a block of calls and gives the microseconds of each by events."""


def clocks_agree(wall: dict[str, float]) -> bool:
    """Whether the candidate's events hold about what the judge waited for a call."""
    return wall["candidate"] <= SLACK * wall["events"] + SLACK_US


def by_the_judge(eager: Block, ours: Block, claimed: float, now: Callable[[], float]) -> dict[str, float]:
    """Microseconds of a candidate's call, less what the loop around it takes, as eager's shows.

    Of all blocks the least counts, for each side by itself: a pause of the machine only adds, and nothing that a candidate does
    takes away. `claimed` is what its events say in the blocks that its speed-up comes from: it may not say more here.
    """
    began, outside, events = now(), math.inf, 0.0
    loop = min(_beside(eager, now) for _ in range(_AT_LEAST))
    while True:
        loop = min(loop, _beside(eager, now))
        took, times = _timed(ours, now)
        if took < outside:
            outside, events = took, min(statistics.median(times), claimed)
        found = {"candidate": outside - loop, "events": events, "loop": loop}
        if clocks_agree(found) or now() - began > MOST_S:
            return found


def _beside(eager: Block, now: Callable[[], float]) -> float:
    took, times = _timed(eager, now)
    return max(0.0, took - statistics.median(times))


def _timed(block: Block, now: Callable[[], float]) -> tuple[float, list[float]]:
    """Microseconds of a call by both clocks."""
    start = now()
    times = block()
    return (now() - start) / len(times) * 1e6, times
