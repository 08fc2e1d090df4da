"""What a sandboxed process can use: its own clock, and in a child a channel to the server.

The server trusts nothing that arrives over the channel except what affects only the child itself: a request
for or release of the GPU lock, a status text for display, and a draft of its reply.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kernelmill.sandbox.own_time import MOST_CLOCK_FILES, OwnTime
from kernelmill.sandbox.wire import pack

GO = b"g"
"""The server's answer when it grants the GPU lock."""


class ServerChannel:
    """A child's connection to the server, apart from its reply."""

    def __init__(self, end: socket.socket | None = None) -> None:
        self._end = end

    @contextmanager
    def holding_gpu(self, exclusive: bool, cap: float) -> Iterator[None]:
        """Wait for the GPU lock and hold it for at most `cap` seconds.

        A child that holds it longer is killed. Waiting does not count towards the timeout.
        """
        self.acquire_gpu(exclusive, cap)
        try:
            yield
        finally:
            self.release_gpu()

    def acquire_gpu(self, exclusive: bool, cap: float) -> None:
        self._say({"gpu_lock": "exclusive" if exclusive else "shared", "cap": cap})
        if self._end is not None and self._end.recv(1) != GO:
            os._exit(1)  # the server is gone

    def release_gpu(self) -> None:
        self._say({"gpu_lock": "released"})

    def new_companion(self) -> tuple[socket.socket, OwnTime]:
        """Start one more companion for the current request: a socket to it, and its own time."""
        assert self._end is not None, "no server has forked this process"
        self._say({"companion": 1})
        answer, fds, _, _ = socket.recv_fds(self._end, 1, 1 + MOST_CLOCK_FILES)
        if answer != GO:
            os._exit(1)  # the server is gone
        if not fds:
            raise OSError("the server could not start another process")
        return socket.socket(fileno=fds[0]), OwnTime(fds[1:])

    def doing(self, what: str) -> None:
        self._say({"doing": what})

    def draft(self, result: dict[str, Any] | None) -> None:
        """Send the reply as far as it is known.

        If the child is killed by the server, this is its reply. None withdraws it.
        """
        self._say({"draft": result})

    def _say(self, message: dict[str, Any]) -> None:
        if self._end is not None:
            self._end.sendall(pack(json.dumps(message).encode()))


server = ServerChannel()
"""Not connected in a process that no server has forked: the GPU lock is then granted at once."""
clock = OwnTime(())
"""This process's own time; wall-clock time in a process that no server has forked."""
companions: list[OwnTime] = []
"""Each companion's own time, for the current request of a child."""


def enter(end: socket.socket | None) -> None:
    """Set up a new child or companion, before it is confined."""
    global server, clock
    server, clock = ServerChannel(end), OwnTime.of()
