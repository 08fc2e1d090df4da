"""`kernelmill rescore`: compute the rewards of stored verdicts again, without running anything.

Rows are streamed. `rewards` is computed from the rest of the row; `--reward NAME` also puts that one at the top
level as `reward`, null where it is masked. Every other key and value stays as it is, in its order, and so do
rewards of other names than ours. A row that is no verdict ends the command, and nothing is written: the output is
made beside its place and renamed when it is whole.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from kernelmill.errors import BadRow, OutputError, SourceError
from kernelmill.evaluate.score.rewards import REWARDS, compute, find
from kernelmill.evaluate.verdict import Verdict
from kernelmill.settings.arguments import Parser


def parser() -> Parser:
    made = Parser(
        prog="kernelmill rescore",
        description="Compute the rewards of stored verdicts again, without running anything.",
    )
    made.add_argument("verdicts", type=Path, metavar="VERDICTS.jsonl", help="what kernelmill evaluate wrote")
    made.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FILE", help="another file than the source"
    )
    made.add_argument(
        "--reward", metavar="NAME", help=f"also as the column `reward`: {', '.join(REWARDS)}, fast_<p>"
    )
    return made


def main(arguments: list[str]) -> int:
    options = parser().parse_args(arguments)
    if options.reward is not None:
        find(options.reward)  # a wrong name is said before the first row is read
    rows = rescore(options.verdicts, options.output, options.reward)
    print(f"{rows:,} row{'s' if rows != 1 else ''} rescored into {options.output}", file=sys.stderr)
    return 0


def rescore(source: Path, output: Path, reward: str | None = None) -> int:
    """Write `output` anew from `source`. Returns the number of rows."""
    if not source.is_file():
        raise SourceError(f"{source} is not a file: name the verdicts that kernelmill evaluate wrote")
    if output.is_dir():
        raise OutputError(f"{output} is a folder: name a file")
    if not output.parent.is_dir():
        raise OutputError(f"{output.parent} is not there: make the folder first")
    if output.exists() and output.samefile(source):
        raise OutputError(f"{output} is the source itself: name another output with -o")
    rows = 0
    part = output.with_name(f".{output.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            for line in _rescored(source, reward):
                file.write(line)
                rows += 1
            file.flush()
            os.fsync(file.fileno())
        part.replace(output)
    finally:
        part.unlink(missing_ok=True)
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
            # Half of a surrogate pair, which JSON can name and UTF-8 cannot hold, is named again.
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
    """A key that stands twice would be lost once."""
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return made
