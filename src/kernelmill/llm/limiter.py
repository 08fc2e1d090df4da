"""How many calls may be in flight: as many as the server takes, never more than the user said.

A 429 (or 503, 529) halves the limit, at most once for the calls that were in flight together, and `Retry-After`
holds every new call back until then. Successes raise it again: by one each below the level at which the server last
complained (so it doubles in one round), by a twentieth each above it, and after a minute without complaint that level is
forgotten. Where one call at a time is still too many, calls are spaced out. Does not count tokens a minute: a server that limits those says so with a 429.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque

_FORGET = 60.0
_LONGEST_HOLD = 30.0


class Limiter:
    """Hands out slots. `acquire` waits for one, `release` gives it back."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.limit = float(most)
        self.in_flight = 0
        self._calm = float(most)
        """Below this level growth is quick; set where the server last complained."""
        self._not_before = 0.0
        self._shrunk_at = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._open = False
        self._hold = 0.0
        """Seconds between calls where even one at a time is too many: the server limits calls a minute."""

    async def acquire(self) -> float:
        """Wait for a slot; returns the time at which the call starts."""
        while not self._free():
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            self._wake()  # held back with nothing in flight, only a timer can wake us: set it
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._wake()
                raise
        self.in_flight += 1
        return time.monotonic()

    def release(self) -> None:
        self.in_flight -= 1
        self._wake()

    def succeeded(self) -> None:
        self._hold = 0.0 if self._hold < 0.1 else self._hold / 2
        if self.limit < self.most:
            quick = self.limit < self._calm or time.monotonic() - self._shrunk_at > _FORGET
            self.limit = min(self.most, self.limit + (1.0 if quick else max(0.05, 1.0 / self.limit)))
            self._wake()

    def pushed_back(self, started: float, retry_after: float | None) -> None:
        """The server asked for fewer calls, to a call that had started at `started`."""
        now = time.monotonic()
        if retry_after is not None:
            self._not_before = max(self._not_before, now + retry_after)
        elif self.limit <= 1.0:
            # Nothing is left to halve, and the server does not say when to come back.
            self._hold = min(_LONGEST_HOLD, max(0.25, self._hold * 2))
            self._not_before = max(self._not_before, now + self._hold)
        if started >= self._shrunk_at:
            self._shrunk_at = now
            self._calm = max(1.0, self.limit * 0.75)
            self.limit = max(1.0, min(self.limit, float(self.in_flight)) / 2)

    def let_go(self) -> None:
        """Hold nobody back any more: the run is stopping, and who waits here must learn of it."""
        self._open = True
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)

    @property
    def held_back(self) -> float:
        """Seconds until the server wants to hear from us again."""
        return max(0.0, self._not_before - time.monotonic())

    def _free(self) -> bool:
        return self._open or (self.in_flight < int(self.limit) and self.held_back == 0.0)

    def _wake(self) -> None:
        if wait := self.held_back:
            if self._timer is None and self._waiting:
                self._timer = asyncio.get_running_loop().call_later(wait + 0.001, self._timer_fired)
            return
        free = int(self.limit) - self.in_flight
        while self._waiting and free > 0:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                free -= 1

    def _timer_fired(self) -> None:
        self._timer = None
        self._wake()
