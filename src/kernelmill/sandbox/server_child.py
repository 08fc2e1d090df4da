"""A child as the server sees it: its process, its descriptors, and the request that it serves."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from kernelmill.sandbox.ending import Process
from kernelmill.sandbox.gpu_lock import LockRequest
from kernelmill.sandbox.own_time import Mark, OwnTime
from kernelmill.sandbox.scratch import bytes_written, holds_too_much
from kernelmill.sandbox.wire import (
    MAX_OUTPUT,
    MAX_SCRATCH,
    MAX_SCRATCH_FILES,
)


@dataclass
class Request:
    """A request that a child is serving."""

    number: int
    nonce: bytes
    started: float
    timeout: float
    companions: list[Process]
    clocks: list[tuple[OwnTime, Mark]]
    """The clocks of the child and its companions, with their marks at the start."""
    waited: float = 0.0
    """Seconds spent waiting for the GPU lock, before it was granted."""
    doing: tuple[str, float] = ("", 0.0)
    """The child's status text, and since when."""
    draft: bytes | None = None
    heard: int = 0
    """Number of messages received over the child's line."""

    def __post_init__(self) -> None:
        self.look_at = self.started + self.timeout
        """The earliest time at which its own time may be used up."""

    def status(self, lock: LockRequest | None, waits: bool) -> dict[str, Any]:
        """What the parent displays of it."""
        what, since = self.doing
        said: dict[str, Any] = {"id": self.number, "doing": what, "since": since}
        if lock is not None:
            said |= {"exclusive": lock.exclusive, "waits": waits, "lock_since": lock.since}
        return said

    def close_clocks(self) -> None:
        """Close the clocks of the companions."""
        for clock, _ in self.clocks[1:]:
            clock.close()


@dataclass
class Child:
    pid: int
    scratch: str
    tasks: socket.socket
    """The server's end of the socket that carries requests to the child."""
    reply: int
    output: int
    output_end: int
    """Stays open while the child lives: the companions of its next request also print to it."""
    request: Request | None = None
    served: int = 0
    data: bytearray = field(default_factory=bytearray)
    said: bytearray = field(default_factory=bytearray)
    """Received over its line and not yet parsed."""
    line_is_open: bool = True
    printed: bytes = b""
    clock: OwnTime = field(default_factory=lambda: OwnTime(()))

    def processes(self) -> list[Process]:
        """The child, and the companions of its request."""
        return [Process(self.pid, self.scratch), *(self.request.companions if self.request else ())]

    def wrote_too_much(self) -> bool:
        return any(
            bytes_written(process.pid) > MAX_SCRATCH
            or holds_too_much(process.scratch, MAX_SCRATCH, MAX_SCRATCH_FILES)
            for process in self.processes()
        )

    def read_output(self) -> None:
        """Keep the end of what it has printed."""
        self.printed = (self.printed + os.read(self.output, 1 << 16))[-MAX_OUTPUT:]

    def drain_output(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self.output, 1 << 16):
                self.printed = (self.printed + data)[-MAX_OUTPUT:]


def fork(parent_folder: str, be: Callable[[str], NoReturn]) -> Process:
    """Fork a process with its own scratch folder in `parent_folder`, which is passed to `be`."""
    scratch = os.path.join(parent_folder, secrets.token_hex(16))
    os.mkdir(scratch, 0o700)
    try:
        pid = os.fork()
    except OSError:
        os.rmdir(scratch)
        raise
    if pid == 0:
        try:
            be(scratch)
        finally:
            os._exit(1)
    return Process(pid, scratch)
