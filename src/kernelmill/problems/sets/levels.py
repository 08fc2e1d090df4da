"""The level files of a set of RL prompts (`kernel_bench_triton_level_1.jsonl` …), as lines of bytes.

A line is the bytes of one row without its line end, exactly as in the file. Irregularities of the file (a
byte order mark, CRLF, blank lines, no final line end) are recorded with the line and removed from its bytes:
`merge` reports them, `verify` treats them as faults. Rows are not parsed here: `rl_rows` does that.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from kernelmill.base.problem_layout import IMPORT
from kernelmill.errors import ConfigError, SourceError

PREFIX = "kernel_bench_triton"
COUNTS = {1: 100, 2: 100, 3: 50, 4: 20}
"""The number of problems in each level of KernelBench."""
EXPORT_RECORD = f"{PREFIX}_export.json"
"""The record that an export writes beside its level files: the levels, their row counts, and their hashes."""
NO_END = "the file ends without a line end"


class Line(NamedTuple):
    where: str
    """`file:line`."""
    raw: bytes
    odd: str | None
    """What is irregular about it as a line of a file."""


class LevelRecord(msgspec.Struct, frozen=True):
    rows: int
    sha256: str


class ExportRecord(msgspec.Struct, frozen=True):
    """The file `EXPORT_RECORD`."""

    name: str
    benchmark: bool
    levels: dict[int, LevelRecord]


def level_file(folder: Path, level: int) -> Path:
    return folder / f"{PREFIX}_level_{level}.jsonl"


def merged_file(folder: Path, levels: Sequence[int]) -> Path:
    """Return `…_all_levels.jsonl`.

    A subset of KernelBench's levels gets another name, so it is not taken for the whole.
    """
    if set(levels) >= set(COUNTS):
        return folder / f"{PREFIX}_all_levels.jsonl"
    return folder / f"{PREFIX}_levels_{'_'.join(map(str, levels))}.jsonl"


def export_record(folder: Path) -> ExportRecord | None:
    """Return the export's record of the level files here; None if they were made elsewhere."""
    file = folder / EXPORT_RECORD
    try:
        return msgspec.json.decode(file.read_bytes(), type=ExportRecord)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SourceError(f"{file}: cannot be read ({error.strerror})") from None
    except msgspec.DecodeError as error:
        raise SourceError(f"{file}: cannot be read ({error}): export again, or remove it") from None


def levels_of(folder: Path, asked: str | None) -> list[int]:
    """Return the levels to use: those asked for, else those of the export, else KernelBench's four."""
    record = None if asked else export_record(folder)
    return asked_levels(asked) or sorted(record.levels if record else COUNTS)


def asked_levels(asked: str | None) -> list[int] | None:
    """Parse `1,2` to levels; None if nothing was asked for."""
    if asked is None:
        return None
    try:
        levels = sorted({int(part) for part in asked.split(",")})
    except ValueError:
        levels = []
    if not levels or levels[0] < 1:
        raise ConfigError(f"--levels {asked}: expected levels with commas between, such as 1,2")
    return levels


def _maker(path: Path) -> str:
    """Return the command that makes a missing file, for the error message."""
    folder = path.parent
    if path.name.startswith(f"{PREFIX}_level_"):
        return (
            f"kernelmill problems export -o {folder} makes the level files of an imported set "
            f"({IMPORT}), or take a part of the levels with --levels"
        )
    return f"kernelmill problems merge {folder} makes it of the level files"


def read_lines(path: Path) -> list[Line]:
    """Read every line of a file that is not blank, with what is irregular about it."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise SourceError(f"{path}: no such file: {_maker(path)}") from None
    except OSError as error:
        raise SourceError(f"{path}: cannot be read ({error.strerror})") from None
    lines = []
    blank: list[int] = []
    pieces = content.split(b"\n")
    ended = pieces[-1] == b""
    for number, piece in enumerate(pieces[:-1] if ended else pieces, 1):
        odd = []
        if number == 1 and piece.startswith(codecs.BOM_UTF8):
            odd.append("a byte order mark stands before it")
            piece = piece.removeprefix(codecs.BOM_UTF8)
        if piece.endswith(b"\r"):
            odd.append("it ends with CRLF, not with LF")
            piece = piece.removesuffix(b"\r")
        if not piece.strip():
            blank.append(number)
            continue
        if blank:
            odd.append(f"a blank line stands before it (line {', '.join(map(str, blank))})")
            blank = []
        if number == len(pieces):
            odd.append(NO_END)
        lines.append(Line(f"{path}:{number}", piece, "; ".join(odd) or None))
    if blank and lines:
        last = lines[-1]
        said = f"a blank line stands after it (line {', '.join(map(str, blank))})"
        lines[-1] = last._replace(odd=f"{last.odd}; {said}" if last.odd else said)
    if not lines:
        raise SourceError(f"{path}: there is no row in it")
    return lines
