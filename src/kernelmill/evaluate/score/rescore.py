"""`kernelmill rescore`: recompute the rewards of stored verdicts, without running anything.

Rows are streamed. `rewards` is recomputed from the rest of the row. `--reward NAME` also adds that reward at
the top level as `reward`, null if it is masked. All other keys and values stay the same and in order,
including rewards with names that are not ours. A row that is not a verdict ends the command and nothing is
written: the output goes to a temporary file beside it, which is renamed when it is complete.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from kernelmill.base.whole_file import replacing
from kernelmill.errors import BadRow, OutputError, SourceError
from kernelmill.evaluate.score.rewards import REWARDS, compute, find
from kernelmill.evaluate.verdict import Verdict
from kernelmill.settings.options import ToolSettings, argument, option


@dataclass(frozen=True, kw_only=True)
class RescoreSettings(ToolSettings):
    """Compute the rewards of stored verdicts again, without running anything."""

    abbreviations = True
    verdicts: Path = argument("what kernelmill evaluate wrote", "VERDICTS.jsonl")
    output: Path = option(..., "another file than the source", flag="-o")
    reward: str | None = option(
        None, lambda: f"also as the column `reward`: {REWARDS.listed()}", metavar="NAME"
    )


def main(given: RescoreSettings) -> int:
    if given.reward is not None:
        find(given.reward)  # report a wrong name before reading the first row
    rows = rescore(given.verdicts, given.output, given.reward)
    print(f"{rows:,} row{'s' if rows != 1 else ''} rescored into {given.output}", file=sys.stderr)
    return 0


def rescore(source: Path, output: Path, reward: str | None = None) -> int:
    """Rewrite `output` from `source`. Returns the number of rows."""
    if not source.is_file():
        raise SourceError(f"{source} is not a file: name the verdicts that kernelmill evaluate wrote")
    if output.is_dir():
        raise OutputError(f"{output} is a folder: name a file")
    if not output.parent.is_dir():
        raise OutputError(f"{output.parent} is not there: make the folder first")
    if output.exists() and output.samefile(source):
        raise OutputError(f"{output} is the source itself: name another output with -o")
    rows = 0
    with replacing(output) as file:
        for line in _rescored(source, reward):
            file.write(line)
            rows += 1
    return rows


def _rescored(source: Path, reward: str | None) -> Iterator[bytes]:
    with source.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            row = _row(line, f"{source}:{number}")
            try:
                verdict = Verdict.from_dict(row)
            except ValueError as error:
                raise BadRow(f"{source}:{number}", str(error)) from error
            row["rewards"] = {**verdict.rewards, **compute(verdict)}
            if reward is not None:
                row["reward"] = compute(verdict, [reward])[reward]
            text = json.dumps(row, ensure_ascii=False, allow_nan=False)
            # JSON can escape half a surrogate pair, which UTF-8 cannot encode: escape it again.
            yield text.encode("utf-8", "backslashreplace") + b"\n"


def _row(line: bytes, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line, parse_constant=_refused, parse_float=_finite, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        torn = "" if line.endswith(b"\n") else "; the last line is torn: was the run that wrote it killed?"
        raise BadRow(where, f"not JSON ({error}){torn}") from error
    if not isinstance(row, dict):
        raise BadRow(where, f"expected a verdict, found {type(row).__name__}")
    return row


def _refused(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"{text[:40]} is too large a number")
    return number


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Reject a duplicate key, because one of its values would be lost."""
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return made
