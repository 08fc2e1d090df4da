"""What work costs, told in ways that hold on a busy machine: by counting, or beside the same work on less.

No test asserts a number of seconds: how many pass depends on who else uses the machine. A count depends on the code alone,
so it comes first. It does not see inside a regular expression or another single call: there `growth` compares two sizes in
one run, by the time of this thread on the processor.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from types import FrameType


def calls_of(work: Callable[[], object]) -> int:
    """How many functions are called while this runs in this thread, those of C included."""
    count = 0

    def tell(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(tell)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def growth(work: Callable[[str], object], text: Callable[[int], str], small: int, times: int = 16) -> float:
    """How many times as long `work` takes on `text(small * times)` as on `text(small)`: about `times` where time is linear.

    A square would be `times` squared, so that a bound of four times `times` is far from both.
    """
    short, long = text(small), text(small * times)
    return ratio(lambda: work(long), lambda: work(short), enough=2.0 * times)


def ratio(work: Callable[[], object], other: Callable[[], object], enough: float = 0.0) -> float:
    """How many times as long `work` takes as `other`, each by its best round: whoever else is at work only makes it longer.

    `work` has one round where the answer is below `enough`, and five where it is not.
    """
    theirs = min(_seconds(other) for _ in range(5))
    mine = _seconds(work)
    for _ in range(4):
        if mine > enough * theirs:
            theirs, mine = min(theirs, _seconds(other)), min(mine, _seconds(work))
    return mine / theirs


def _seconds(work: Callable[[], object]) -> float:
    """The time of this thread on the processor; without the collector, which looks through what other tests have left."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        start = time.thread_time()
        work()
        return time.thread_time() - start
    finally:
        if was_on:
            gc.enable()
