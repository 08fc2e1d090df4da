"""Turns at what the children of a server share: many beside each other, or one alone.

The server grants them, so it knows who has one and since when, and nobody keeps one for longer than its cap, whatever
happens in the process that has it.

Each change from many to one waits until everybody has left, so there are few of them: who wants to be alone lets others
begin before it for `PATIENCE` seconds as long as somebody is at work, and those who then wait to be alone follow each
other. Otherwise first come, first served.

No input or output here, and the clock is given.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

PATIENCE = 1.0


@dataclass
class Turn:
    who: int
    alone: bool
    cap: float
    """Seconds."""
    since: float
    """When it was asked for; once it is granted, when that was."""


@dataclass
class Turns:
    clock: Callable[[], float] = time.monotonic
    holding: dict[int, Turn] = field(default_factory=dict)
    waiting: list[Turn] = field(default_factory=list)
    _in_a_row: bool = False
    """The last one to begin was alone: who comes now to be alone does not overtake."""

    def ask(self, who: int, alone: bool, cap: float) -> None:
        self.leave(who)
        self.waiting.append(Turn(who, alone, cap, self.clock()))

    def leave(self, who: int) -> None:
        """It is done, does not want a turn any more, or is dead."""
        self.holding.pop(who, None)
        self.waiting = [turn for turn in self.waiting if turn.who != who]

    def has(self, who: int) -> bool:
        """Whether it has a turn, or waits for one."""
        return who in self.holding or any(turn.who == who for turn in self.waiting)

    def linger(self, who: int) -> None:
        """It is beside others until it leaves, and asks nobody: processes that are ending."""
        self.holding[who] = Turn(who, False, math.inf, self.clock())

    def grant(self) -> list[Turn]:
        """Those who may begin now."""
        begun: list[Turn] = []
        while (turn := self._next()) is not None:
            self.waiting.remove(turn)
            turn.since = self.clock()
            self.holding[turn.who] = turn
            begun.append(turn)
            if turn.alone and not self._in_a_row:
                self.waiting.sort(key=lambda one: not one.alone)  # stable: otherwise as they came
            self._in_a_row = turn.alone
        return begun

    def _next(self) -> Turn | None:
        if not self.waiting or any(turn.alone for turn in self.holding.values()):
            return None
        first = self.waiting[0]
        if not (first.alone and self.holding):
            return first
        if self.clock() >= first.since + PATIENCE:
            return None
        return next((turn for turn in self.waiting if not turn.alone), None)

    def overdue(self) -> list[Turn]:
        """Those who have had a turn for longer than they may."""
        now = self.clock()
        return [turn for turn in self.holding.values() if now >= turn.since + turn.cap]

    def next_due(self) -> float | None:
        """When the next one will have had its time."""
        return min((turn.since + turn.cap for turn in self.holding.values()), default=None)
