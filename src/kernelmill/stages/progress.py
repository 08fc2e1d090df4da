"""Progress of calls: counts, tokens and cost; on a terminal with a bar."""

from __future__ import annotations

from typing import Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from kernelmill.base.control import Stats
from kernelmill.base.terminal import LINE, count, fit, money, rate, shorten
from kernelmill.runner.progress import ProgressLine, time_left

_BAR = 12
_NAME = 28


class Progress(ProgressLine):
    """Shows `Stats`."""

    def __init__(self, stats: Stats, what: str, priced: bool) -> None:
        super().__init__()
        self._stats = stats
        self._what = what
        self._priced = priced
        self._console = Console(stderr=True)
        self._live = self._console.is_terminal
        self._display = Live(get_renderable=self._render, console=self._console, refresh_per_second=4)

    def __enter__(self) -> Self:
        super().__enter__()
        self._stats.started = self._started
        if self._live:
            self._display.start()
        else:
            self.say(f"{self._what}: {self._stats.total:,} to do")
        return self

    def __exit__(self, *_: object) -> None:
        self._stats.seconds += self._clock() - self._started
        if self._live:
            self._display.stop()
        else:
            self.say(self.line())

    def show(self) -> None:
        if not self._live:  # else the display draws itself
            super().show()

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
        finished, elapsed = stats.done + stats.failed, self._clock() - stats.started
        waiting = stats.waiting or (
            f"failing: {stats.failing}"[:50] if stats.failing and not stats.done else ""
        )
        retries = stats.retries.total()
        tokens = f"{count(stats.tokens_in)} in, {count(stats.tokens_out)} out"
        return fit(
            [
                (0, f"{self._what}: {finished:,} of {stats.total:,}"),
                (2, time_left(finished, stats.total, elapsed)),
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
        if self._live:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            super().say(line)
