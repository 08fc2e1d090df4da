"""A JSONL file that is being written: rows in, blocks out, hashed on the way.

Blocks are hashed and written in a thread of their own, so that the next rows are made meanwhile. What goes wrong there (a full
disk) is raised by the next `add`, or by `finish`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

_BLOCK = 1 << 20
_PIECES = 1000
"""Rows and line ends in a block: the system takes 1,024 at once."""


class RowFile:
    """Nothing is on the disk for certain before `finish`."""

    def __init__(self, path: Path, hashed: bool = True) -> None:
        self._file = path.open("wb", buffering=0)
        self._sha = hashlib.sha256() if hashed else None
        self._pieces: list[bytes] = []
        self._size = 0
        self._thread = ThreadPoolExecutor(1)
        self._under_way: Future[None] | None = None

    def add(self, raw: bytes) -> None:
        """One row, without its line end."""
        self._pieces += raw, b"\n"
        self._size += len(raw)
        if self._size >= _BLOCK or len(self._pieces) >= _PIECES:
            self._send()

    def _send(self) -> None:
        self._wait()
        self._under_way = self._thread.submit(self._write, self._pieces)
        self._pieces, self._size = [], 0

    def _wait(self) -> None:
        if self._under_way is not None:
            self._under_way.result()

    def _write(self, pieces: list[bytes]) -> None:
        # The rows as they are: joining them first would copy everything once more.
        written = os.writev(self._file.fileno(), pieces)
        if written < sum(map(len, pieces)):
            left = memoryview(b"".join(pieces))[written:]
            while left:
                left = left[self._file.write(left) :]
        if self._sha is not None:
            for piece in pieces:
                self._sha.update(piece)

    def finish(self) -> str:
        """Bring everything to the disk. Returns the SHA-256 of the file, if it was to be hashed."""
        if self._pieces:
            self._send()
        self._wait()
        os.fsync(self._file.fileno())
        self.close()
        return self._sha.hexdigest() if self._sha is not None else ""

    def close(self) -> None:
        """Give the file up, or, after `finish`, nothing."""
        self._thread.shutdown(wait=True)
        # Some file systems tell of a full disk only here; the file is given up anyway.
        with contextlib.suppress(OSError):
            self._file.close()
