"""Progress on standard error: one line, redrawn in place on a terminal and printed every few seconds elsewhere."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from typing import Self

from kernelmill.base.terminal import LINE, duration, fit, rate, say, shorten

EVERY = 10.0
"""Seconds between two lines where there is no terminal."""
_NAME = 32


class ProgressLine:
    """Shows `line`, which a subclass writes. Use as a context manager; `show` is called twice a second."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started = self._said = clock()
        self._live = sys.stderr.isatty()

    def __enter__(self) -> Self:
        self._started = self._said = self._clock()
        return self

    def __exit__(self, *_: object) -> None:
        self._clear()

    def line(self, width: int = LINE) -> str:
        raise NotImplementedError

    def show(self) -> None:
        """Show the line if it is due."""
        if self._live:
            width = shutil.get_terminal_size((LINE, 24)).columns - 1
            print(f"\r\x1b[K{self.line(width)}", end="", file=sys.stderr, flush=True)
        elif self._clock() - self._said >= EVERY:
            self._said = self._clock()
            say(self.line())

    def say(self, line: str) -> None:
        """Print a line above the progress line."""
        self._clear()
        say(line)

    def _clear(self) -> None:
        if self._live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def time_left(done: int, total: int, elapsed: float) -> str:
    """How long the rest takes at the rate so far; empty before the first item and after the last."""
    return f"{duration((total - done) * elapsed / done)} left" if 0 < done < total else ""


class ItemProgress(ProgressLine):
    """Items done, rate, time left, and the item that is in progress the longest.

    `what` describes finished items, such as `problems checked`. The runner sets the numbers.
    """

    def __init__(self, what: str) -> None:
        super().__init__()
        self._what = what
        self.total = self.done = 0
        self.doing: dict[str, str] = {}

    def line(self, width: int = LINE) -> str:
        elapsed = self._clock() - self._started
        return fit(
            [
                (0, f"{self.done:,} of {self.total:,} {self._what}"),
                (1, rate(self.done, elapsed)),
                (3, time_left(self.done, self.total, elapsed)),
                (2, shorten(next(iter(self.doing.values()), ""), _NAME)),
            ],
            width,
        )
