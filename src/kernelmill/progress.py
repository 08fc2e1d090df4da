"""Progress of a batch: a live bar on a terminal, a plain line now and then elsewhere. Both on standard error."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import (
    Progress as Bar,
)
from rich.text import Text

from kernelmill.control import Stats
from kernelmill.terminal import count, duration, money, say

_EVERY = 10.0


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
            self._bar = Bar(
                TextColumn("{task.description}"), BarColumn(bar_width=None), MofNCompleteColumn(), TaskProgressColumn(),
                TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
                console=self._console, auto_refresh=False, expand=True,
            )  # fmt: skip
            self._task = self._bar.add_task(self._what, total=self._stats.total)
            self._live = Live(get_renderable=self._render, console=self._console, refresh_per_second=4)
            self._live.start()
        else:
            self.say(f"{self._what}: {self._stats.total:,} to do")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stats.seconds += time.monotonic() - self._stats.started
        self.update()
        if self._live is not None:
            self._live.stop()
        else:
            self.say(self._line())

    def update(self) -> None:
        stats = self._stats
        if self._live is not None:
            self._bar.update(self._task, completed=stats.done + stats.failed, total=stats.total)
        elif time.monotonic() - self._said_at >= _EVERY:
            self._said_at = time.monotonic()
            self.say(self._line())

    def _render(self) -> Group:
        return Group(self._bar, Text(self._facts(), style="dim", overflow="ellipsis", no_wrap=True))

    def _facts(self) -> str:
        stats = self._stats
        facts = [f"{self._rate():.1f}/s"]
        if self._priced:
            facts.append(f"{stats.in_flight} in flight")
        if retries := stats.retries.total():
            facts.append(f"{retries} retries")
        if self._priced:
            tokens = f"{count(stats.tokens_in)} in, {count(stats.tokens_out)} out"
            facts.append(
                tokens + (f" ({count(stats.tokens_reasoning)} reasoning)" if stats.tokens_reasoning else "")
            )
            facts.append(money(stats.cost))
        if stats.waiting:
            facts.append(stats.waiting)
        elif retries and not stats.done:
            facts.append(f"last failure: {next(reversed(stats.retries))}")
        return "  ".join(facts)

    def _line(self) -> str:
        stats = self._stats
        finished = stats.done + stats.failed
        left = (stats.total - finished) / rate if (rate := self._rate()) else None
        ahead = f", {duration(left)} left" if left is not None and finished < stats.total else ""
        return f"{self._what}: {finished:,} of {stats.total:,}{ahead}  {self._facts()}"

    def _rate(self) -> float:
        elapsed = time.monotonic() - self._stats.started
        return (self._stats.done + self._stats.failed) / elapsed if elapsed > 0 else 0.0

    def say(self, line: str) -> None:
        """A line by itself, above the bar where there is one."""
        if self._live is not None:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            say(line)
