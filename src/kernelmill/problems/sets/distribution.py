"""The distribution of a merged set's rows by level and name, as text, JSON and a small plot.

Counts only. The same rows give the same bytes in all three.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from kernelmill.base.bar_chart import svg_bars, terminal_bars
from kernelmill.base.terminal import plain
from kernelmill.problems.sets.merge import Placed

_NAMED = 5


class LevelShare(msgspec.Struct, frozen=True):
    level: int
    rows: int
    percent: float
    """Share of all rows, to one decimal place."""
    names: int
    """The number of distinct problem names."""


class Distribution(msgspec.Struct, frozen=True):
    rows: int
    names: int
    levels: list[LevelShare]
    repeated: dict[str, int]
    """Names that occur more than once, and how often."""
    sha256: str
    """The hash of the merged file."""

    def lines(self) -> list[str]:
        """Return the text for people."""
        bars = [(f"level {share.level}", share.rows) for share in self.levels]
        drawn = terminal_bars(bars)
        text = [f"{'rows':<12}{self.rows:,}"]
        text += [f"{line}  {share.percent:.1f} %" for line, share in zip(drawn, self.levels, strict=True)]
        text.append(f"{'names':<12}{self.names:,} different problem names")
        some = list(self.repeated.items())[:_NAMED]
        if some:
            more = f" and {len(self.repeated) - len(some):,} more" if len(self.repeated) > len(some) else ""
            text.append(
                f"{'repeated':<12}{', '.join(f'{plain(name)} ({number})' for name, number in some)}{more}"
            )
        return [*text, f"{'sha256':<12}{self.sha256}"]

    def svg(self) -> str:
        bars = [(f"level {share.level} ({share.percent:.1f} %)", share.rows) for share in self.levels]
        return svg_bars("Rows by level", bars, f"{self.rows:,} rows, {self.names:,} different problem names")


def distribution_of(rows: Sequence[Placed], sha256: str) -> Distribution:
    names = [_name(row) for row in rows]
    counts = Counter(names)
    shares = []
    for level in sorted({row.level for row in rows}):
        mine = [name for name, row in zip(names, rows, strict=True) if row.level == level]
        shares.append(LevelShare(level, len(mine), round(100 * len(mine) / len(rows), 1), len(set(mine))))
    repeated = {name: number for name, number in sorted(counts.items()) if number > 1}
    return Distribution(len(rows), len(counts), shares, repeated, sha256)


def _name(placed: Placed) -> str:
    extra = placed.row.get("extra_info")
    name = extra.get("problem_name") if isinstance(extra, dict) else None
    return name if isinstance(name, str) else ""
