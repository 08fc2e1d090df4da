"""What a confined process has of its place: its own clock, and for a child a line to the server.

The server believes nothing that comes over the line but what costs only the child itself: that it wants a turn or is
done with one, what it is doing (for people to see), and a draft of its reply.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kernelmill.sandbox.own_time import OwnTime
from kernelmill.sandbox.wire import pack

GO = b"g"
"""What the server answers when a turn begins."""


class Line:
    def __init__(self, end: socket.socket | None = None) -> None:
        self._end = end

    @contextmanager
    def turn(self, alone: bool, cap: float) -> Iterator[None]:
        """Wait for a turn and have it, `cap` seconds at most: who keeps it for longer is ended. Waiting costs no time."""
        self.take(alone, cap)
        try:
            yield
        finally:
            self.leave()

    def take(self, alone: bool, cap: float) -> None:
        self._say({"turn": "alone" if alone else "beside", "cap": cap})
        if self._end is not None and self._end.recv(1) != GO:
            os._exit(1)  # the server is gone

    def leave(self) -> None:
        self._say({"turn": "done"})

    def doing(self, what: str) -> None:
        self._say({"doing": what})

    def draft(self, result: dict[str, Any] | None) -> None:
        """The reply as it stands. If the child is ended from outside, this is its reply; None: no more."""
        self._say({"draft": result})

    def _say(self, message: dict[str, Any]) -> None:
        if self._end is not None:
            self._end.sendall(pack(json.dumps(message).encode()))


line = Line()
"""To nobody in a process that no server has made: turns are then granted at once."""
clock = OwnTime(())
"""This process's own time; the wall clock in a process that no server has made."""
companions: list[OwnTime] = []
"""Of a child's request: each companion's own time, seen from outside it."""


def enter(end: socket.socket | None) -> None:
    """In a new child or companion, before it is confined."""
    global line, clock
    line, clock = Line(end), OwnTime.of()
