"""How many calls may be in flight and how closely they follow each other: as the server takes them, never more than the user said.

A 429 (or 503, 529) usually concerns the call that got it. That call waits (the engine sees to it), the limit falls by its
slot, but not below half for calls that were in flight together, and everybody else goes on. Each success gives a slot back up
to the level at which the server last complained, and a twentieth of one above it, so a server with a limit refuses about one
call in twenty, and one that refuses fewer at random is asked at full speed.

The server's whole allowance is used up where it says so (`x-ratelimit-remaining…: 0`), where it refuses a call with nothing
else in flight, or where it has refused as many in a row as were in flight. Then nobody starts before `Retry-After` (or a
pause that doubles). In the first two cases its limit is not on calls in flight: from there on calls are spaced at the rate at
which it served them, a little closer with each success.
Does not count tokens a minute: a server that limits those says so with a 429.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque

_LONGEST_HOLD = 30.0
_FIRST_HOLD = 0.25
_PROBE = 0.05
"""Slots that a success adds above the level at which the server last complained."""
_SETTLED = 50
"""Successes without complaint after which probing is twice as fast, after twice as many three times, and so on."""
_CLOSER = 0.0004
"""Share by which the first success after a complaint brings paced calls closer; the tenth, ten times as much."""
_SHORTEST_GAP = 0.001
_ENOUGH = 3
"""Calls that have to be served before their rate says anything."""


class Limiter:
    """Hands out slots. `acquire` waits for one, `release` gives it back."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.limit = float(most)
        self.in_flight = 0
        self._calm = float(most)
        """Below this level a success adds a whole slot; set where the server last complained."""
        self._floor = 1.0
        self._shrunk_at = 0.0
        """Calls that started before this were in flight together when the limit last fell."""
        self._in_a_row = 0
        self._together = 1
        """Refusals since the last success, and how many calls were in flight when the first of them came."""
        self._since_complaint = 0
        self._not_before = 0.0
        self._held_at = 0.0
        self._hold = 0.0
        self._gap = 0.0
        """Seconds between the starts of two calls, where the server has a limit on calls a second."""
        self._next_start = 0.0
        self._counting_from: float | None = None
        self._served = 0
        """When the server's allowance was last new, and how many calls it has served since."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._open = False

    async def acquire(self, first: bool = False) -> float:
        """Wait for a slot, before all others if `first`; returns the time at which the call starts."""
        while not self._free():
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            (self._waiting.appendleft if first else self._waiting.append)(turn)
            self._wake()  # held back with nothing in flight, only a timer can wake us: set it
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._wake()
                raise
            first = True  # who was woken and finds the slot taken does not go to the end of the queue
        self.in_flight += 1
        now = time.monotonic()
        if self._counting_from is None:
            self._counting_from = now
        self._next_start = max(now, self._next_start) + self._gap
        if self._gap:
            self._wake()
        return now

    def release(self) -> None:
        self.in_flight -= 1
        self._wake()

    def succeeded(self) -> None:
        self._in_a_row = 0
        self._hold = 0.0
        self._served += 1
        self._since_complaint += 1
        if self._gap:
            closer = self._gap * (1 - min(0.5, _CLOSER * self._since_complaint))
            self._gap = closer if closer >= _SHORTEST_GAP else 0.0
        if self.limit < self.most:
            probe = min(1.0, _PROBE * (1 + self._since_complaint / _SETTLED))
            self.limit = min(self.most, self.limit + (1.0 if self.limit < self._calm else probe))
            self._wake()

    def pushed_back(self, started: float, retry_after: float | None, exhausted: bool = False) -> None:
        """The server refused a call that had started at `started`; `exhausted` where it says that nothing is left for others."""
        now = time.monotonic()
        level = min(self.limit, float(self.in_flight))
        if started >= self._shrunk_at:
            self._shrunk_at, self._floor = now, max(1.0, level / 2)
            self._gap *= 1.05
        if not self._in_a_row:
            self._together = max(1, self.in_flight)
        self._in_a_row += 1
        self._since_complaint = 0
        self.limit = self._calm = max(self._floor, level - 1)
        used_up = exhausted or self.in_flight <= 1
        if used_up or self._in_a_row >= self._together:
            self._hold_everybody(now, started, retry_after)
        if used_up and self._served >= _ENOUGH and self._counting_from is not None:
            gap = (max(now, self._not_before) - self._counting_from) / self._served
            self._gap = min(_LONGEST_HOLD, max(gap, self._gap))
            self._counting_from, self._served = max(now, self._not_before), 0

    def _hold_everybody(self, now: float, started: float, retry_after: float | None) -> None:
        self.limit = self._floor
        self._calm = max(self.limit, 0.75 * self._together)
        if retry_after is None:
            if started < self._held_at:
                return  # in flight when the others were told already
            self._hold = min(_LONGEST_HOLD, max(_FIRST_HOLD, self._hold * 2))
            retry_after = self._hold
        self._held_at = now
        self._not_before = max(self._not_before, now + retry_after)

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

    def _wait(self) -> float:
        """Seconds until a call may start, as far as time is concerned."""
        return max(0.0, max(self._not_before, self._next_start if self._gap else 0.0) - time.monotonic())

    def _free(self) -> bool:
        return self._open or (self.in_flight < int(self.limit) and self._wait() == 0.0)

    def _wake(self) -> None:
        if wait := self._wait():
            if self._timer is None and self._waiting:
                self._timer = asyncio.get_running_loop().call_later(wait + 0.001, self._timer_fired)
            return
        free = int(self.limit) - self.in_flight
        if self._gap:
            free = min(free, 1)  # the one that starts wakes the next, when its time has come
        while self._waiting and free > 0:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                free -= 1

    def _timer_fired(self) -> None:
        self._timer = None
        self._wake()
