"""Adaptive limit on calls in flight and on call rate, never above the user's concurrency.

Push-back (429, 503 or 529) usually concerns one call. That call waits (the engine handles this) and the
others go on. The limit falls by one slot, but calls that were in flight together lower it to half at most.
Each success adds a whole slot up to the level at which the server last pushed back, and a twentieth of a slot
above it. A server with a limit therefore refuses about one call in twenty, and a server that refuses fewer at
random is called at full speed.

The server's allowance counts as used up in three cases:

1. A header says so (`x-ratelimit-remaining…: 0`).
2. The server refuses a call with nothing else in flight.
3. The server has refused as many calls in a row as were in flight.

Then no call starts before `Retry-After`, or before a doubling pause. In cases 1 and 2 the limit is not on
calls in flight: from then on calls are spaced at the rate at which the server served them, slightly closer
after each success.

Does not count tokens per minute: a server that limits those answers 429.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque

_LONGEST_HOLD = 30.0
_FIRST_HOLD = 0.25
_PROBE = 0.05
"""Slots that a success adds above the level of the last push-back."""
_SETTLED = 50
"""Successes without push-back after which the probe step has doubled; after twice as many it has tripled, and
so on."""
_CLOSER = 0.0004
"""Share by which the first success after push-back shortens the gap of paced calls; the tenth, ten times as
much."""
_SHORTEST_GAP = 0.001
_ENOUGH = 3
"""Served calls needed to estimate the server's rate."""


class Limiter:
    """Hands out slots: `acquire` waits for one, `release` returns it."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.limit = float(most)
        self.in_flight = 0
        self._calm = float(most)
        """Level of the last push-back. Below it a success adds a whole slot."""
        self._floor = 1.0
        self._shrunk_at = 0.0
        """Time of the last change of `_floor`. Calls that started earlier were in flight together then."""
        self._in_a_row = 0
        self._together = 1
        """Refusals since the last success, and the calls in flight at the first of them."""
        self._since_complaint = 0
        self._not_before = 0.0
        self._held_at = 0.0
        self._hold = 0.0
        self._gap = 0.0
        """Seconds between the starts of two calls where the server limits the call rate; else 0."""
        self._next_start = 0.0
        self._counting_from: float | None = None
        self._served = 0
        """When the server's allowance was last renewed, and the calls served since."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._open = False

    async def acquire(self, first: bool = False) -> float:
        """Wait for a slot, at the head of the queue if `first`. Returns the call's start time."""
        while not self._free():
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            (self._waiting.appendleft if first else self._waiting.append)(waiter)
            self._wake()  # set the timer: with nothing in flight, nothing else would wake us
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake()
                raise
            first = True  # woken but the slot is taken: stay at the head of the queue
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
        """Record that the server refused a call started at `started`.

        `exhausted`: the server says that its allowance is used up.
        """
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
                return  # was already in flight when the current hold began
            self._hold = min(_LONGEST_HOLD, max(_FIRST_HOLD, self._hold * 2))
            retry_after = self._hold
        self._held_at = now
        self._not_before = max(self._not_before, now + retry_after)

    def let_go(self) -> None:
        """Let every waiter through: the run is stopping, and each of them has to see that."""
        self._open = True
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)

    @property
    def held_back(self) -> float:
        """Seconds until the server accepts calls again."""
        return max(0.0, self._not_before - time.monotonic())

    def _wait(self) -> float:
        """Seconds until a call may start, apart from slots."""
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
            free = min(free, 1)  # each call that starts schedules the next one
        while self._waiting and free > 0:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                free -= 1

    def _timer_fired(self) -> None:
        self._timer = None
        self._wake()
