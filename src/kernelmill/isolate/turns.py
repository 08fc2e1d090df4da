"""Turns at what the children of a server share: many beside each other, or one alone.

The server grants them, so it knows who has one and since when, and nobody keeps one for longer than its cap, whatever
happens in the process that has it. First come, first served, with one exception: those who already wait to be alone
when somebody begins to be follow directly, for each change between the two kinds waits until everybody has left.

No input or output here, and the clock is given.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field


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

    def ask(self, who: int, alone: bool, cap: float) -> None:
        self.leave(who)
        self.waiting.append(Turn(who, alone, cap, self.clock()))

    def leave(self, who: int) -> None:
        """It is done, does not want a turn any more, or is dead."""
        self.holding.pop(who, None)
        self.waiting = [turn for turn in self.waiting if turn.who != who]

    def grant(self) -> list[Turn]:
        """Those who may begin now."""
        begun: list[Turn] = []
        while self.waiting and self._may(self.waiting[0]):
            turn = self.waiting.pop(0)
            turn.since = self.clock()
            self.holding[turn.who] = turn
            begun.append(turn)
            if turn.alone:
                self.waiting.sort(key=lambda one: not one.alone)  # stable: otherwise as they came
        return begun

    def _may(self, turn: Turn) -> bool:
        return not self.holding or not (turn.alone or any(one.alone for one in self.holding.values()))

    def overdue(self) -> list[Turn]:
        """Those who have had a turn for longer than they may."""
        now = self.clock()
        return [turn for turn in self.holding.values() if now >= turn.since + turn.cap]

    def next_due(self) -> float | None:
        """When the next one will have had its time."""
        return min((turn.since + turn.cap for turn in self.holding.values()), default=None)
