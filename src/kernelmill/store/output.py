"""Write one output: kept rows, rejected rows, and a manifest that says how they were made.

    outputs/filtered_dataset.jsonl             the rows that were kept
    outputs/filtered_dataset.rejected.jsonl    every other row, with its reason
    outputs/filtered_dataset.manifest.json     counts, source, resolved config, hashes; written last

Each file is written under a temporary name and renamed when it is complete, the manifest last. A manifest
therefore means that the output is complete. A failed or interrupted run leaves the previous output untouched.
A lock keeps two processes from writing the same output: the second one fails.
"""

from __future__ import annotations

import datetime
import os
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import msgspec

from kernelmill import __version__
from kernelmill.base.locks import lock_of, take_lock
from kernelmill.base.rows import RejectedRow, Row, is_json_object
from kernelmill.base.whole_file import encoded
from kernelmill.errors import OutputError, disk_fault
from kernelmill.store.row_file import RowFile


def beside(path: Path, suffix: str) -> Path:
    """`outputs/x.jsonl`, `.manifest.json` → `outputs/x.manifest.json`."""
    return path.with_name(path.name.removesuffix(".jsonl") + suffix)


def test_path(path: Path) -> Path:
    """The output path of a run in test mode: beside the real output, never over it."""
    return path.with_name(f"{path.name.removesuffix('.jsonl')}.test.jsonl")


test_path.__test__ = False  # type: ignore[attr-defined]  # pytest would collect it as a test


class Output:
    """Writes kept and rejected rows. Use as a context manager; `commit` makes them visible."""

    def __init__(self, path: Path) -> None:
        if path.is_dir():
            raise OutputError(f"{path} is a folder: name a file, such as {path / 'rows.jsonl'}")
        if not path.name.endswith(".jsonl") or path.name == ".jsonl":
            raise OutputError(f"{path}: outputs are JSONL, so the name must end in .jsonl")
        self.path = path
        self.rejected_path = beside(path, ".rejected.jsonl")
        self.manifest_path = beside(path, ".manifest.json")
        for other in (self.rejected_path, self.manifest_path):
            if other.is_dir():
                raise OutputError(f"{other} is a folder, and has to be a file: move it away")
        self.kept = 0
        self.reasons: Counter[str] = Counter()
        self._lock: IO[bytes] | None = None
        self._rows: RowFile | None = None
        self._rejects: RowFile | None = None

    def __enter__(self) -> Output:
        """Lock the output for this process and open its files. Fails at once where it cannot be written."""
        self._lock = take_lock(self.path, f"{self.path} is being written by another kernelmill process")
        # Remove partial files left by a killed run.
        for path in (self.path, self.rejected_path, self.manifest_path):
            _temporary(path).unlink(missing_ok=True)
        self._rows = RowFile(_temporary(self.path))
        self._rejects = RowFile(_temporary(self.rejected_path), hashed=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, OSError) and disk_fault(error) and error.filename is None:
            error.filename = str(self.path)  # a failed write does not name its file
        for file in (self._rows, self._rejects):
            if file is not None:
                file.close()
        for path in (self.path, self.rejected_path, self.manifest_path):
            _temporary(path).unlink(missing_ok=True)
        if self._lock is not None:
            self._lock.close()

    def listing(self) -> list[tuple[str, str]]:
        """The output's files, labelled for a summary."""
        rejected = [("", str(self.rejected_path))] if self.reasons else []
        return [("output", str(self.path)), *rejected, ("", str(self.manifest_path))]

    def refuse(self, path: Path, what: str) -> None:
        """Fail if `path`, which is used as `what`, is one of the output's own files."""
        if self.owns(path):
            raise OutputError(
                f"{path} is {what}, and one of the files that {self.path} needs: name another output with -o"
            )

    def owns(self, path: Path) -> bool:
        """Whether `path` is one of the output's own files."""
        mine = (self.path, self.rejected_path, self.manifest_path)
        return path.resolve() in {
            name.resolve() for file in mine for name in (file, _temporary(file), lock_of(file))
        }

    def keep(self, raw: bytes) -> None:
        assert self._rows is not None
        self._rows.add(raw)
        self.kept += 1

    def reject(
        self,
        row: Row,
        reason: str,
        kind: str,
        attempts: list[str] | None = None,
        *,
        readable: bool = False,
    ) -> None:
        """Write a row to the rejected file. The summary counts by `kind`; `reason` is specific to this row.

        A row that is not JSON is written as text. `readable` says that the row is known to be JSON.
        """
        assert self._rejects is not None
        rejected = RejectedRow(row.index, row.where, reason, attempts=attempts)
        if readable or is_json_object(row.raw):
            rejected.row = msgspec.Raw(row.raw)
        else:
            rejected.text = row.raw.decode("utf-8", "replace")
        self._rejects.add(msgspec.json.encode(rejected))
        self.reasons[kind] += 1

    def commit(
        self, stage: str, rows_in: int, config: dict[str, Any], details: dict[str, Any]
    ) -> dict[str, Any]:
        """Move the files into place, the manifest last.

        Raises `AssertionError` if a row is unaccounted for.
        """
        rejected = sum(self.reasons.values())
        if rows_in != self.kept + rejected:
            raise AssertionError(f"{rows_in} rows in, but {self.kept} kept + {rejected} rejected")
        assert self._rows is not None
        assert self._rejects is not None
        sha256 = self._rows.finish()
        self._rejects.finish()
        manifest = {
            "stage": stage,
            "version": __version__,
            "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "output": {"path": self.path.name, "rows": self.kept, "sha256": sha256},
            "rows": {"in": rows_in, "out": self.kept, "rejected": rejected, "reasons": dict(self.reasons)},
            **details,
            "config": config,
        }
        # Sync everything first: a full disk then leaves the previous output and its manifest intact.
        _temporary(self.manifest_path).write_bytes(encoded(manifest))
        to_disk(_temporary(self.manifest_path))
        self.manifest_path.unlink(missing_ok=True)
        for path in (self.path, self.rejected_path, self.manifest_path):
            os.replace(_temporary(path), path)
        to_disk(self.path.parent)
        return manifest


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.tmp")


def to_disk(path: Path) -> None:
    """Sync a file, or the entries of a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
