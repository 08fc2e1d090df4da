"""Read pairs to judge from a JSONL file, as a stream, and check them row by row.

A row is `{"id", "reference", "candidate", "entry_point"}`; `reference` and `candidate` are required. The
default id is the line number. Other columns are ignored. The first bad row raises `BadRow` with its file and
line.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from kernelmill.errors import BadRow, SourceError, json_kind
from kernelmill.evaluate.options import Pair


def read_pairs(source: Path, entry_point: str | None = None, limit: int | None = None) -> Iterator[Pair]:
    """Yield the first `limit` pairs of a `.jsonl` or `.jsonl.gz`.

    `entry_point` is the default for rows without one.
    """
    read = 0
    with _open(source) as lines:
        numbered = enumerate(lines, 1)
        while limit is None or read < limit:
            try:
                number, line = next(numbered, (0, b""))
            except (OSError, EOFError, zlib.error) as error:
                raise SourceError(f"{source} cannot be read: {error}") from None
            if not number:
                return
            if line.strip():
                read += 1
                yield _pair(line, f"{source}:{number}", number, entry_point)


def _open(source: Path) -> IO[bytes] | gzip.GzipFile:
    if not source.is_file():
        raise SourceError(f"{source}: no such file" if not source.exists() else f"{source} is not a file")
    try:
        return gzip.open(source) if source.suffix == ".gz" else source.open("rb")
    except OSError as error:
        raise SourceError(f"{source} cannot be read ({error.strerror})") from None


def _pair(line: bytes, where: str, number: int, entry_point: str | None) -> Pair:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadRow(where, f"not JSON ({error})") from None
    if not isinstance(row, dict):
        raise BadRow(where, f"not a JSON object but {json_kind(row)}")
    name = row.get("id")
    if name is None:
        name = str(number)
    elif isinstance(name, int) and not isinstance(name, bool):
        name = str(name)
    elif not isinstance(name, str):
        raise BadRow(where, f"expected a text, got {json_kind(name)}", "$.id")
    own = row.get("entry_point")
    if own is not None and not isinstance(own, str):
        raise BadRow(where, f"expected a text, got {json_kind(own)}", "$.entry_point")
    return Pair(name, _text(row, "reference", where), _text(row, "candidate", where), own or entry_point)


def _text(row: dict[str, Any], name: str, where: str) -> str:
    if name not in row:
        raise BadRow(where, "missing", f"$.{name}")
    value = row[name]
    if not isinstance(value, str):
        raise BadRow(where, f"expected a text, got {json_kind(value)}", f"$.{name}")
    return value
