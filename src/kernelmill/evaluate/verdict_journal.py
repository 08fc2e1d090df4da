"""The journal of a batch: verdicts as they arrive, keyed by the content that decides them.

Each row is appended to a JSONL file and flushed, so that a crash loses only the rows in flight. A torn last
line is cut off. Memory use does not grow with the number of rows: the index of positions is a temporary
SQLite file.

INFRA_ERROR is the evaluator's failure, not the candidate's. Such a row counts for this run only, and is owed
again in the next one.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from kernelmill.errors import OutputError
from kernelmill.evaluate.verdict import Verdict

VerdictRow = dict[str, Any]


def encode(row: VerdictRow) -> bytes:
    """A row as one line. A lone surrogate, which UTF-8 cannot encode, is escaped."""
    return json.dumps(row, ensure_ascii=False, allow_nan=False).encode("utf-8", "backslashreplace") + b"\n"


class VerdictJournal:
    """The wanted keys, and the verdicts in `output` (an earlier result) and in `path` (the journal)."""

    def __init__(self, path: Path, output: Path) -> None:
        self.path = path
        self._output = output
        self._files: list[IO[bytes]] = []
        self._appending: IO[bytes] | None = None
        # The empty name is a temporary file, which grows on disk and not in memory. Each run rebuilds it.
        self._index = sqlite3.connect("", isolation_level=None)
        self._index.execute("PRAGMA journal_mode = OFF")
        self._index.execute("CREATE TABLE wanted (key TEXT PRIMARY KEY) WITHOUT ROWID")
        self._index.execute("CREATE TABLE verdicts (key TEXT PRIMARY KEY, file INT, start INT) WITHOUT ROWID")

    def close(self) -> None:
        self._index.close()
        for file in (*self._files, *([self._appending] if self._appending else ())):
            file.close()

    def want(self, key: str) -> None:
        self._index.execute("INSERT OR IGNORE INTO wanted VALUES (?)", (key,))

    def owed(self) -> int:
        """Number of distinct pairs without a verdict."""
        query = "SELECT count(*) FROM wanted WHERE key NOT IN (SELECT key FROM verdicts)"
        return int(self._index.execute(query).fetchone()[0])

    def wanted(self) -> int:
        return int(self._index.execute("SELECT count(*) FROM wanted").fetchone()[0])

    def __contains__(self, key: object) -> bool:
        return bool(self._index.execute("SELECT 1 FROM verdicts WHERE key = ?", (key,)).fetchone())

    def __getitem__(self, key: str) -> VerdictRow:
        file, start = self._index.execute("SELECT file, start FROM verdicts WHERE key = ?", (key,)).fetchone()
        self._files[file].seek(start)
        row: VerdictRow = json.loads(self._files[file].readline())
        return row

    def load(self) -> None:
        """Load the verdicts of earlier runs. Raise `OutputError` if the output holds anything else."""
        if self._output.exists():
            self._load_output()
        self.path.touch()
        whole = 0
        number, file = self._add_file(self.path)
        for start, line in _lines(file):
            if not line.endswith(b"\n"):
                break
            whole = start + len(line)
            row = _verdict(line)
            if row is not None:
                self._put(row, number, start)
        os.truncate(self.path, whole)
        self._appending = self.path.open("ab")

    def add(self, row: VerdictRow) -> None:
        """Append a verdict, with its `key`."""
        assert self._appending is not None, "load first"
        start = self._appending.tell()
        self._appending.write(encode(row))
        self._appending.flush()
        self._index.execute(
            "INSERT OR REPLACE INTO verdicts VALUES (?, ?, ?)", (row["key"], len(self._files) - 1, start)
        )

    def _load_output(self) -> None:
        advice = "name another output with -o, or replace it with --force"
        number, file = self._add_file(self._output)
        for line_number, (start, line) in enumerate(_lines(file), 1):
            row = _verdict(line)
            if row is None:
                raise OutputError(f"{self._output}:{line_number} is no verdict of this command: {advice}")
            if not self._index.execute("SELECT 1 FROM wanted WHERE key = ?", (row["key"],)).fetchone():
                raise OutputError(
                    f"{self._output}:{line_number} has the verdict of another pair, or by other options or versions: {advice}"
                )
            self._put(row, number, start)

    def _add_file(self, path: Path) -> tuple[int, IO[bytes]]:
        self._files.append(path.open("rb"))
        return len(self._files) - 1, self._files[-1]

    def _put(self, row: VerdictRow, file: int, start: int) -> None:
        if row["status"] != "INFRA_ERROR":
            self._index.execute("INSERT OR REPLACE INTO verdicts VALUES (?, ?, ?)", (row["key"], file, start))


def _lines(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file, each with its byte offset."""
    start = 0
    for line in file:
        yield start, line
        start += len(line)


def _verdict(line: bytes) -> VerdictRow | None:
    """The row, if it is a verdict with a key."""
    try:
        row: VerdictRow = json.loads(line)
        Verdict.from_dict(row)
    except ValueError:
        return None
    return row if isinstance(row.get("key"), str) else None
