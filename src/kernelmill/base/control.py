"""Counters of a running batch, and control over how it stops.

The engine writes `Stats` and the progress display reads it. `Control` is asked before each new piece of work
whether the run goes on. The first Ctrl-C (or SIGTERM) lets paid work in flight finish; the second stops at
once. Work that costs nothing is cancelled at the first. In every case the same command resumes the run.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kernelmill.base.terminal import say
from kernelmill.errors import Interrupted, MillError


@dataclass
class Stats:
    """Counts of one run. `cost` is None as soon as one call's cost is unknown: unknown is not zero."""

    total: int = 0
    done: int = 0
    failed: int = 0
    in_flight: int = 0
    requests: int = 0
    """Requests sent to the server, retries included."""
    calls: int = 0
    """Requests that were answered, and paid for."""
    retries: Counter[str] = field(default_factory=Counter)
    """Retried requests by reason."""
    unusable: int = 0
    """Answers that could not be used."""
    doing: dict[str, str] = field(default_factory=dict)
    """Names of the items being worked on, by question key; the longest-running first."""
    failing: str = ""
    """The last failure, if nothing has succeeded since."""
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_reasoning: int = 0
    uncounted_calls: int = 0
    """Calls without token counts from the server."""
    cost: float | None = 0.0
    """US dollars spent by this run."""
    spent_before: float = 0.0
    """US dollars that earlier runs spent on the same questions, as far as known."""
    unknown_before: int = 0
    """Answers of earlier runs whose cost is unknown."""
    answered_before: int = 0
    """Questions of this job that earlier runs answered."""
    waiting: str = ""
    """What the run is waiting for, if anything."""
    started: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    """Duration of the asking."""


class Control:
    """Decides whether the run goes on. `stop` ends it with an error once paid work in flight is done."""

    def __init__(self) -> None:
        self.stopping = asyncio.Event()
        self.error: MillError | None = None
        self._tasks: Sequence[asyncio.Task[Any]] = ()
        self._free = False
        self._on_stop: list[Callable[[], None]] = []
        self._on_pause: list[Callable[[], None]] = []
        self._on_resume: list[Callable[[], Awaitable[object]]] = []
        self.paused = 0
        """Number of pieces of work that wait for a retry while others take their place."""

    def stop(self, error: MillError) -> None:
        """Take no new work.

        Paid work in flight finishes; free work is cancelled. The user sees the first error given.
        """
        if self.error is None:
            self.error = error
        self.stopping.set()
        for tell in self._on_stop:
            tell()
        if self._free:
            self.cancel()

    def on_stop(self, tell: Callable[[], None]) -> None:
        """Register a callback for `stop`."""
        self._on_stop.append(tell)

    async def sleep(self, seconds: float) -> None:
        """Sleep, but wake at once when the run stops."""
        try:
            async with asyncio.timeout(seconds):
                await self.stopping.wait()
        except TimeoutError:
            return

    async def pause(self, seconds: float, replace: bool) -> None:
        """Sleep before a retry. With `replace`, other work may start in the meantime."""
        if not replace:
            await self.sleep(seconds)
            return
        self.paused += 1
        for begin in self._on_pause:
            begin()
        try:
            await self.sleep(seconds)
        finally:
            self.paused -= 1
            for end in self._on_resume:
                await end()

    def on_pause(
        self, begin: Callable[[], None], resume: Callable[[], Awaitable[object]] | None = None
    ) -> None:
        """Register callbacks: `begin` when work pauses and other work starts, `resume` before it goes on."""
        self._on_pause.append(begin)
        if resume is not None:
            self._on_resume.append(resume)

    def off_pause(self, begin: Callable[[], None]) -> None:
        self._on_pause.remove(begin)

    def watch(self, tasks: Sequence[asyncio.Task[Any]], *, free: bool) -> None:
        """Set the tasks that a second Ctrl-C cancels.

        If they are `free` (cost nothing), any stop cancels them.
        """
        self._tasks, self._free = tasks, free

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Handle Ctrl-C and SIGTERM inside the block."""
        loop = asyncio.get_running_loop()
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        # A shell's & ignores SIGINT; keep ignored signals ignored.
        numbers = [number for number in before if before[number] != signal.SIG_IGN]
        for number in numbers:
            loop.add_signal_handler(number, self._interrupt)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)
                signal.signal(number, before[number])

    def _interrupt(self) -> None:
        if not self.stopping.is_set():
            if self._tasks and not self._free:
                say("Stopping: finishing what is in flight. Ctrl-C again stops at once.")
            self.stop(Interrupted("interrupted"))
        else:
            self.stop(Interrupted("interrupted"))
            self.cancel()
