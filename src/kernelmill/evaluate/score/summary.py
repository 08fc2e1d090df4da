"""Summarise many verdicts in one pass: memory does not grow with the number of rows.

Medians come from counts of numbers rounded to three digits, so they are accurate to half a percent. Shares
and fast_p are of all rows, as in KernelBench: inconclusive rows are in the denominator and listed beside it.
Plain text only, at most 100 columns wide.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any, get_args

from kernelmill.evaluate.score.rewards import compute
from kernelmill.evaluate.verdict import Status, Verdict, VerdictValue

FAST = ("fast_0", "fast_1", "fast_1.5", "fast_2")
TOP_FLAGS = 10
WIDTH = 100

_MAX_CODES = 1_000
_OTHER = ("(other codes)", "")


class Median:
    """The median of positive numbers, from counts of them rounded to three digits."""

    def __init__(self) -> None:
        self._counts: Counter[float] = Counter()
        self.n = 0

    def add(self, value: float) -> None:
        if value > 0 and math.isfinite(value):
            self._counts[float(f"{min(max(value, 1e-9), 1e12):.3g}")] += 1
            self.n += 1

    @property
    def value(self) -> float | None:
        """The lower of the two middle numbers; None if there are no numbers."""
        rank = (self.n + 1) // 2
        for value in sorted(self._counts):
            rank -= self._counts[value]
            if rank <= 0:
                return value
        return None


class Summary:
    """Counts over verdict rows. `seconds` is how long it took to produce them, if known."""

    def __init__(self, rows: Iterable[dict[str, Any]] = (), seconds: float | None = None) -> None:
        self.rows = 0
        self.seconds = seconds
        self.verdicts: Counter[VerdictValue] = Counter()
        self.statuses: Counter[Status] = Counter()
        self.tiers: Counter[str] = Counter()
        self.flags: Counter[tuple[str, str]] = Counter()
        """Number of rows with a flag, by code and severity."""
        self.fast: Counter[str] = Counter()
        self.timed = 0
        self.speedup = Median()
        """Of correct rows that were timed, as is `median_us`."""
        self.median_us = Median()
        self.seconds_a_row = Median()
        """The cost of a row: `cost.wall_s`, if the record has it."""
        for row in rows:
            self.add(row)

    def add(self, row: dict[str, Any]) -> None:
        verdict = Verdict.from_dict(row)
        self.rows += 1
        self.verdicts[verdict.verdict] += 1
        self.statuses[verdict.status] += 1
        self.tiers[verdict.tier] += 1
        for flag in {(flag.code, flag.severity) for flag in verdict.flags}:
            self.flags[flag if flag in self.flags or len(self.flags) < _MAX_CODES else _OTHER] += 1
        for name, value in compute(verdict, FAST).items():
            self.fast[name] += value == 1.0
        if verdict.verdict == "correct" and verdict.perf is not None:
            self.timed += 1
            self.speedup.add(verdict.perf.speedup)
            self.median_us.add(verdict.perf.median_us)
        wall = verdict.cost.get("wall_s")
        if isinstance(wall, int | float):
            self.seconds_a_row.add(wall)


def render(summary: Summary) -> str:
    """A text table, without a trailing newline."""
    if not summary.rows:
        return "no rows"
    blocks = [[_headline(summary)]]
    truths = [(name, summary.verdicts[name]) for name in get_args(VerdictValue) if summary.verdicts[name]]
    blocks.append(_table("verdict", truths, summary.rows))
    blocks.append(_table("status", _most(summary.statuses), summary.rows))
    if summary.flags:
        top = _most(summary.flags)
        shown = [(f"{code} {severity}".strip(), count) for (code, severity), count in top[:TOP_FLAGS]]
        heading = "flags" if len(top) <= TOP_FLAGS else f"flags (the first {TOP_FLAGS} of {len(top)})"
        blocks.append(_table(heading, shown, summary.rows))
    blocks.append(_fast(summary))
    return "\n\n".join("\n".join(line[:WIDTH].rstrip() for line in block) for block in blocks)


def _most(counts: Counter[Any]) -> list[tuple[Any, int]]:
    """The most frequent first. Ties are sorted by name, so that the order of rows does not matter."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _headline(summary: Summary) -> str:
    rows = f"{summary.rows:,} row{'s' if summary.rows != 1 else ''}"
    tiers = ", ".join(f"{name} {count:,}" for name, count in _most(summary.tiers))
    rate = ""
    if summary.seconds is not None and summary.seconds > 0:
        rate = f" in {_duration(summary.seconds)} ({summary.rows / summary.seconds * 60:,.1f} a minute)"
    return f"{rows}{rate}; tier: {tiers}"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _table(heading: str, counts: Iterable[tuple[str, int]], total: int) -> list[str]:
    lines = [f"{heading:<48}{'rows':>12}{'share':>10}"]
    for name, count in counts:
        # A code comes from a file and may contain anything.
        shown = "".join(letter if letter.isprintable() else "?" for letter in name)
        shown = shown if len(shown) <= 44 else f"{shown[:40]} ..."
        lines.append(f"  {shown:<46}{count:>12,}{count / total:>10.1%}")
    return lines


def _fast(summary: Summary) -> list[str]:
    """fast_p over all rows. Without any timed row, only fast_0 gets a number."""
    lines = [f"{'fast_p, of all rows':<48}{'rows':>12}{'share':>10}"]
    for name in FAST:
        if name == "fast_0" or summary.timed:
            lines.append(f"  {name:<46}{summary.fast[name]:>12,}{summary.fast[name] / summary.rows:>10.1%}")
        else:
            lines.append(f"  {name:<46}{'not timed':>22}")
    untimed = summary.verdicts["correct"] - summary.timed
    if summary.timed and untimed:
        lines.append(f"  {untimed:,} correct rows were not timed and count as not fast for p > 0")
    for label, median, unit in (
        ("median speed-up, of correct and timed rows", summary.speedup, ""),
        ("median time, of correct and timed rows", summary.median_us, " us"),
        ("median cost of a row", summary.seconds_a_row, " s"),
    ):
        if median.value is not None:
            lines.append(f"{label:<48}{f'{median.value:,.3g}{unit}':>22}")
    return lines
