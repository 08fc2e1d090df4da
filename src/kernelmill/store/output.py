"""One output: kept rows, rejected rows, and the manifest that says how they were made.

    outputs/filtered_dataset.jsonl             the rows that were kept
    outputs/filtered_dataset.rejected.jsonl    every other row, with its reason
    outputs/filtered_dataset.manifest.json     counts, source, resolved config, hashes; written last

Everything is written beside its place and renamed when it is whole, the manifest last, so a manifest means
that the output is complete. A failed or interrupted run leaves what was there before untouched. Two processes
never write the same output: the second is told so.
"""

from __future__ import annotations

import datetime
import hashlib
import os
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import msgspec

from kernelmill import __version__
from kernelmill.errors import OutputError
from kernelmill.rows import RejectedRow, Row
from kernelmill.store.lock import take_lock


def beside(path: Path, suffix: str) -> Path:
    """`outputs/x.jsonl`, `.manifest.json` → `outputs/x.manifest.json`."""
    return path.with_name(path.name.removesuffix(".jsonl") + suffix)


def test_path(path: Path) -> Path:
    """Where a run in test mode writes: beside the real output, never over it."""
    return path.with_name(f"{path.name.removesuffix('.jsonl')}.test.jsonl")


test_path.__test__ = False  # type: ignore[attr-defined]  # pytest takes the name for a test


class Output:
    """Writes kept and rejected rows. Use as a context manager; `commit` makes them visible."""

    def __init__(self, path: Path) -> None:
        if path.is_dir():
            raise OutputError(f"{path} is a folder: name a file, such as {path / 'rows.jsonl'}")
        if not path.name.endswith(".jsonl"):
            raise OutputError(f"{path}: outputs are JSONL, so the name must end in .jsonl")
        self.path = path
        self.rejected_path = beside(path, ".rejected.jsonl")
        self.manifest_path = beside(path, ".manifest.json")
        self.kept = 0
        self.reasons: Counter[str] = Counter()
        self._sha = hashlib.sha256()
        self._lock: IO[bytes] | None = None
        self._rows: IO[bytes] | None = None
        self._rejects: IO[bytes] | None = None

    def __enter__(self) -> Output:
        """Take the output for this process. Fails at once where it cannot be written."""
        self._lock = take_lock(self.path, f"{self.path} is being written by another kernelmill process")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in (self._rows, self._rejects):
            if file is not None and not file.closed:
                file.close()
        for path in (self.path, self.rejected_path):
            _temporary(path).unlink(missing_ok=True)
        if self._lock is not None:
            self._lock.close()

    def keep(self, raw: bytes) -> None:
        if self._rows is None:
            self._rows = _temporary(self.path).open("wb", buffering=1 << 20)
        self._rows.write(raw)
        self._rows.write(b"\n")
        self._sha.update(raw)
        self._sha.update(b"\n")
        self.kept += 1

    def reject(
        self, row: Row, reason: str, kind: str, attempts: list[str] | None = None, torn: bool = False
    ) -> None:
        """Write a row to the rejected file. `kind` is what the summary counts; `reason` is for this row."""
        if self._rejects is None:
            self._rejects = _temporary(self.rejected_path).open("wb", buffering=1 << 20)
        rejected = RejectedRow(row.index, row.where, reason, attempts=attempts)
        if torn:
            rejected.text = row.raw.decode("utf-8", "replace")
        else:
            rejected.row = msgspec.Raw(row.raw)
        self._rejects.write(msgspec.json.encode(rejected) + b"\n")
        self.reasons[kind] += 1

    def commit(
        self, stage: str, rows_in: int, config: dict[str, Any], details: dict[str, Any]
    ) -> dict[str, Any]:
        """Put the files in place, the manifest last. Refuses if a row went missing on the way."""
        rejected = sum(self.reasons.values())
        if rows_in != self.kept + rejected:
            raise AssertionError(f"{rows_in} rows in, but {self.kept} kept + {rejected} rejected")
        manifest = {
            "stage": stage,
            "version": __version__,
            "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "output": {"path": self.path.name, "rows": self.kept, "sha256": self._sha.hexdigest()},
            "rows": {"in": rows_in, "out": self.kept, "rejected": rejected, "reasons": dict(self.reasons)},
            **details,
            "config": config,
        }
        self.manifest_path.unlink(missing_ok=True)
        _put(self.path, self._rows)
        _put(self.rejected_path, self._rejects)
        with _temporary(self.manifest_path).open("wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")
            _put(self.manifest_path, file)
        return manifest


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.tmp")


def _put(path: Path, file: IO[bytes] | None) -> None:
    """Rename the finished temporary file into place; no rows at all make an empty file."""
    if file is None:
        file = _temporary(path).open("wb")
    file.flush()
    os.fsync(file.fileno())
    file.close()
    os.replace(_temporary(path), path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
