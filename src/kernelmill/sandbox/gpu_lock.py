"""A shared/exclusive lock for a resource that the children of a server share, such as the GPU.

The server grants the lock, so it knows who holds it and since when. No child holds it for longer than its
cap, whatever happens in that process.

A switch from shared to exclusive has to wait until all holders have left, so switches are kept rare. A child
that waits for exclusive use lets shared requests pass for `PATIENCE` seconds while somebody holds the lock.
Exclusive requests that are waiting at that point then run one after the other. Otherwise the order is first
come, first served.

This module does no I/O, and the clock is passed in.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

PATIENCE = 1.0


@dataclass
class LockRequest:
    who: int
    exclusive: bool
    cap: float
    """Seconds."""
    since: float
    """When it was requested; once granted, when it was granted."""


@dataclass
class GpuLock:
    clock: Callable[[], float] = time.monotonic
    holding: dict[int, LockRequest] = field(default_factory=dict)
    waiting: list[LockRequest] = field(default_factory=list)
    _in_a_row: bool = False
    """The last grant was exclusive: new exclusive requests no longer jump the queue."""

    def ask(self, who: int, exclusive: bool, cap: float) -> None:
        self.leave(who)
        self.waiting.append(LockRequest(who, exclusive, cap, self.clock()))

    def leave(self, who: int) -> None:
        """Release the lock or drop the request: the child is done, no longer wants it, or is dead."""
        self.holding.pop(who, None)
        self.waiting = [request for request in self.waiting if request.who != who]

    def has(self, who: int) -> bool:
        """Whether it holds the lock or waits for it."""
        return who in self.holding or any(request.who == who for request in self.waiting)

    def hold_shared(self, who: int) -> None:
        """Hold a shared lock at once and without a cap until `leave`: for processes that are ending."""
        self.holding[who] = LockRequest(who, False, math.inf, self.clock())

    def grant(self) -> list[LockRequest]:
        """Grant the lock to all who may have it now, and return their requests."""
        granted: list[LockRequest] = []
        while (request := self._next()) is not None:
            self.waiting.remove(request)
            request.since = self.clock()
            self.holding[request.who] = request
            granted.append(request)
            if request.exclusive and not self._in_a_row:
                # The sort is stable: otherwise first come, first served.
                self.waiting.sort(key=lambda one: not one.exclusive)
            self._in_a_row = request.exclusive
        return granted

    def _next(self) -> LockRequest | None:
        if not self.waiting or any(holder.exclusive for holder in self.holding.values()):
            return None
        first = self.waiting[0]
        if not (first.exclusive and self.holding):
            return first
        if self.clock() >= first.since + PATIENCE:
            return None
        return next((request for request in self.waiting if not request.exclusive), None)

    def overdue(self) -> list[LockRequest]:
        """Those who hold the lock for longer than their cap."""
        now = self.clock()
        return [holder for holder in self.holding.values() if now >= holder.since + holder.cap]

    def next_due(self) -> float | None:
        """When the next holder reaches its cap."""
        return min((holder.since + holder.cap for holder in self.holding.values()), default=None)
