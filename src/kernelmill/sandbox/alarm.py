"""Interrupt a step in a sandboxed process when it exceeds a limit on the process's own time."""

from __future__ import annotations

import math
import signal
import threading
from typing import Any

from kernelmill.sandbox import inside

_SOON = 0.01


class TooSlow(BaseException):
    """Raised in the main thread when a step exceeds its time limit."""


def too_slow(error: BaseException) -> TooSlow | None:
    """Find a timeout in the error's context chain: interrupted code may have failed in its clean-up."""
    looked_at: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in looked_at and not isinstance(found, TooSlow):
        looked_at.add(id(found))
        found = found.__context__
    return found if isinstance(found, TooSlow) else None


class Alarm:
    """Raises `TooSlow` when this process's own time exceeds a limit. The judge checks from outside, too."""

    def __init__(self) -> None:
        self._end = math.inf
        self._paused_at: float | None = None

    def set(self, seconds: float) -> None:
        self._paused_at = None
        self._clock, self._start, self._end = inside.clock, inside.clock.mark(), seconds
        signal.signal(signal.SIGALRM, self._ring)
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def stop(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)

    def pause(self) -> bool:
        """Pause the limit. Return False if it is paused already, or if this is not the main thread."""
        if self._paused_at is not None or threading.current_thread() is not threading.main_thread():
            return False
        self._paused_at = self._clock.since(self._start)
        self.stop()
        return True

    def resume(self) -> None:
        assert self._paused_at is not None
        self._end += self._clock.since(self._start) - self._paused_at
        self._paused_at = None
        signal.setitimer(signal.ITIMER_REAL, max(self._end - self._clock.since(self._start), _SOON))

    def _ring(self, number: int, frame: Any) -> None:
        if self._paused_at is not None:
            return
        left = self._end - self._clock.since(self._start)
        if left <= 0:
            raise TooSlow("the time for this step is over")
        signal.setitimer(signal.ITIMER_REAL, max(left, _SOON))
