"""Merging of level files to one file: `kernelmill problems merge`.

Lines are copied unchanged, level after level, and then ordered. The shuffle is that of Python's
`random.seed(seed)` and `random.shuffle`, so the same level files and seed give the same bytes on every
machine and in every program that shuffles this way. Rows are parsed only to check that each is a JSON object,
and for `--order difficulty`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from kernelmill.errors import BadRow, ConfigError, SourceError
from kernelmill.problems.sets.levels import Line, level_file, read_lines
from kernelmill.problems.sets.rl_rows import decoded
from kernelmill.problems.source import read_source

Order = Literal["shuffle", "level", "difficulty", "interleave"]
SEED = 42


class Placed(NamedTuple):
    """A line, and the level it came from."""

    level: int
    line: Line
    row: dict[str, Any]


def read_levels(folder: Path, levels: Sequence[int]) -> list[Placed]:
    """Read the lines of the level files in order.

    Raises at a line that is no JSON object, with its location.
    """
    found = []
    for level in levels:
        for line in read_lines(level_file(folder, level)):
            found.append(Placed(level, line, decoded(line.raw, line.where)))
    return found


def merged(
    placed: Sequence[Placed],
    order: Order = "shuffle",
    seed: int = SEED,
    weights: Mapping[int, float] | None = None,
) -> list[Placed]:
    """Return the rows in the order of the merged file, repeated or sampled by the weight of their level."""
    rows = _weighted(placed, seed, weights) if weights else list(placed)
    match order:
        case "shuffle":
            random.Random(seed).shuffle(rows)
        case "level":
            pass
        case "difficulty":
            rows.sort(key=_difficulty)
        case "interleave":
            rows = _interleaved(rows)
    if not rows:
        raise ConfigError("--weights: no row is left")
    return rows


def written(rows: Sequence[Placed]) -> bytes:
    return b"".join(row.line.raw + b"\n" for row in rows)


def parse_weights(text: str, levels: Sequence[int]) -> dict[int, float]:
    """Parse `1=1,2=2,3=0.5` to a weight a level; a level that is not named keeps each row once."""
    weights: dict[int, float] = {}
    for part in text.split(","):
        level, equals, weight = part.partition("=")
        try:
            good = bool(equals) and int(level) not in weights and 0 <= float(weight) <= 1000
            weights[int(level)] = float(weight)
        except ValueError:
            good = False
        if not good:
            raise ConfigError(
                f"--weights {text}: expected LEVEL=WEIGHT once for a level, with commas between, such as 1=1,2=2,3=0.5"
            )
    if unknown := sorted(set(weights) - set(levels)):
        raise ConfigError(f"--weights {text}: level {unknown[0]} is not among {', '.join(map(str, levels))}")
    return weights


def _weighted(placed: Sequence[Placed], seed: int, weights: Mapping[int, float]) -> list[Placed]:
    """Repeat each row by its level's weight; for the fraction, draw rows with the seed, in their order."""
    rows: list[Placed] = []
    for level in dict.fromkeys(one.level for one in placed):
        mine = [one for one in placed if one.level == level]
        weight = weights.get(level, 1.0)
        rows += mine * int(weight)
        share = round((weight - int(weight)) * len(mine))
        drawn = sorted(random.Random(f"{seed}:{level}").sample(range(len(mine)), share))
        rows += [mine[place] for place in drawn]
    return rows


def _difficulty(placed: Placed) -> tuple[int, int]:
    """Return the sort key: KernelBench's level, then the number of layers and operations of the reference."""
    label = placed.row.get("label")
    if not isinstance(label, str):
        raise BadRow(placed.line.where, "no reference in it, so its difficulty is not known", "$.label")
    try:
        source = read_source(label)
    except SourceError as error:
        raise BadRow(placed.line.where, str(error), "$.label") from None
    return placed.level, len(source.layers) + sum(source.operations.values())


def _interleaved(rows: Sequence[Placed]) -> list[Placed]:
    """Spread the rows of each level evenly, so that every stretch has about the same shares of levels."""
    total = {level: sum(row.level == level for row in rows) for level in {row.level for row in rows}}
    seen = dict.fromkeys(total, 0)
    places = []
    for row in rows:
        places.append(((2 * seen[row.level] + 1) / (2 * total[row.level]), row.level))
        seen[row.level] += 1
    order = sorted(range(len(rows)), key=lambda at: (*places[at], at))
    return [rows[at] for at in order]
