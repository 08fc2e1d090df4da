"""How a running batch is counted, and how it is stopped.

`Stats` is what the progress display reads and the engine writes. `Control` is asked before each new piece of work
whether the run is to go on. The first Ctrl-C (or SIGTERM) lets the work in flight finish, for it is paid for; a second one
stops at once. Work that costs nothing is dropped at the first. All leave a state that the same command resumes.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from kernelmill.base.terminal import say
from kernelmill.errors import Interrupted, MillError


@dataclass
class Stats:
    """Counts of one run. `cost` is None as soon as one call's price is not known: unknown is not zero."""

    total: int = 0
    done: int = 0
    failed: int = 0
    in_flight: int = 0
    requests: int = 0
    """Sent to the server: one for each question, and one for each retry."""
    calls: int = 0
    """Requests that were answered, and paid for."""
    retries: Counter[str] = field(default_factory=Counter)
    """Requests that were made again, by the reason."""
    unusable: int = 0
    """Answers that could not be used."""
    doing: dict[str, str] = field(default_factory=dict)
    """What is being worked on: names by the questions' keys, the longest at it first."""
    failing: str = ""
    """The last failure, where nothing has succeeded since."""
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_reasoning: int = 0
    uncounted_calls: int = 0
    """Calls whose server did not say how many tokens they took."""
    cost: float | None = 0.0
    """Spent by this run."""
    spent_before: float = 0.0
    """Spent on the same questions by earlier runs, as far as it is known."""
    unknown_before: int = 0
    """Answers of earlier runs whose cost is not known."""
    answered_before: int = 0
    """Questions of this job that earlier runs have answered."""
    waiting: str = ""
    """What the run is waiting for, where it is."""
    started: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    """How long the asking took."""


class Control:
    """Says whether to go on. `stop` ends the run with an error once the work in flight is done."""

    def __init__(self) -> None:
        self.stopping = asyncio.Event()
        self.error: MillError | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._free = False
        self._on_stop: list[Callable[[], None]] = []
        self._on_pause: list[Callable[[], None]] = []
        self._on_resume: list[Callable[[], Awaitable[object]]] = []
        self.paused = 0
        """Pieces of work that wait before they are tried again, while others go on."""

    def stop(self, error: MillError) -> None:
        """Take no new work; what is in flight finishes if it is paid for. The first reason given is the one the user sees."""
        if self.error is None:
            self.error = error
        self.stopping.set()
        for tell in self._on_stop:
            tell()
        if self._free:
            self.cancel()

    def on_stop(self, tell: Callable[[], None]) -> None:
        """Call this when the run is to stop."""
        self._on_stop.append(tell)

    async def sleep(self, seconds: float) -> None:
        """Sleep, but wake at once when the run is to stop."""
        try:
            async with asyncio.timeout(seconds):
                await self.stopping.wait()
        except TimeoutError:
            return

    async def pause(self, seconds: float, replace: bool) -> None:
        """Sleep before a piece of work is tried again; with `replace`, something else is begun in its place."""
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
        """Call `begin` when a piece of work waits and another may be begun, `resume` before it goes on."""
        self._on_pause.append(begin)
        if resume is not None:
            self._on_resume.append(resume)

    def off_pause(self, begin: Callable[[], None]) -> None:
        self._on_pause.remove(begin)

    def watch(self, tasks: list[asyncio.Task[None]], *, free: bool) -> None:
        """The tasks that a second Ctrl-C cancels; whatever stops the run does where they are `free`: nothing was paid for them."""
        self._tasks, self._free = tasks, free

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Handle Ctrl-C and SIGTERM inside the block."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._interrupt)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    def _interrupt(self) -> None:
        if not self.stopping.is_set():
            if self._tasks and not self._free:
                say("Stopping: finishing what is in flight. Ctrl-C again stops at once.")
            self.stop(Interrupted("interrupted"))
        else:
            self.stop(Interrupted("interrupted"))
            self.cancel()
