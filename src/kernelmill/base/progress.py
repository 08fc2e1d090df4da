"""Progress of a batch on standard error: a live line on a terminal, else a plain line every few seconds."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from kernelmill.base.control import Stats
from kernelmill.base.terminal import LINE, count, duration, fit, money, rate, say, shorten

_EVERY = 10.0
_BAR = 12
_NAME = 28


class Progress:
    """Shows `Stats`. Use as a context manager; `update` is called about twice a second."""

    def __init__(self, stats: Stats, what: str, priced: bool) -> None:
        self._stats = stats
        self._what = what
        self._priced = priced
        self._console = Console(stderr=True)
        self._live: Live | None = None
        self._said_at = 0.0

    def __enter__(self) -> Progress:
        self._stats.started = self._said_at = time.monotonic()
        if self._console.is_terminal:
            self._live = Live(get_renderable=self._render, console=self._console, refresh_per_second=4)
            self._live.start()
        else:
            self.say(f"{self._what}: {self._stats.total:,} to do")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stats.seconds += time.monotonic() - self._stats.started
        if self._live is not None:
            self._live.stop()
        else:
            self.say(self.line())

    def update(self) -> None:
        if self._live is None and time.monotonic() - self._said_at >= _EVERY:
            self._said_at = time.monotonic()
            self.say(self.line())

    def _render(self) -> RenderableType:
        stats = self._stats
        width = min(self._console.width, 2 * LINE)
        line = Table.grid(padding=(0, 1, 0, 0))
        line.add_row(
            Text(self.line(max(20, width - _BAR - 2)), no_wrap=True, overflow="ellipsis"),
            ProgressBar(total=stats.total, completed=stats.done + stats.failed, width=_BAR),
        )
        return line

    def line(self, width: int = LINE) -> str:
        """The progress line: counts, current item, cost.

        Parts that do not fit are dropped, the least important first.
        """
        stats = self._stats
        finished, elapsed = stats.done + stats.failed, time.monotonic() - stats.started
        ahead = ""
        if 0 < finished < stats.total:
            ahead = f"{duration((stats.total - finished) * elapsed / finished)} left"
        waiting = stats.waiting or (
            f"failing: {stats.failing}"[:50] if stats.failing and not stats.done else ""
        )
        retries = stats.retries.total()
        tokens = f"{count(stats.tokens_in)} in, {count(stats.tokens_out)} out"
        return fit(
            [
                (0, f"{self._what}: {finished:,} of {stats.total:,}"),
                (2, ahead),
                (1, rate(finished, elapsed)),
                (4, f"{stats.in_flight} in flight" if self._priced else ""),
                (6, f"{retries:,} retries" if retries else ""),
                (7, tokens if self._priced else ""),
                (5, money(stats.cost) if self._priced and stats.calls else ""),
                (3, waiting or shorten((list(stats.doing.values()) or [""])[0], _NAME)),
            ],
            width,
        )

    def say(self, line: str) -> None:
        """Print a line, above the live line if there is one."""
        if self._live is not None:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            say(line)
