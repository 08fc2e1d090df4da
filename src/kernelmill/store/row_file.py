"""A JSONL file that is being written: rows in, blocks out, hashed on the way.

Blocks are hashed and written in a thread of their own, so that the next rows are made meanwhile. What goes wrong there (a full
disk) is raised by a later `add`, or by `finish`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

_BLOCK = 1 << 20
"""Larger blocks are no faster to hash, and some kernels take several times as long to write them."""
_SYNC = 64 << 20
"""Bytes after which what is written is brought to the disk, so that not all of it has to be waited for in the end."""
_WAITING = 32
"""Blocks that may wait to be written."""
_SWITCH = 0.0005


class RowFile:
    """Nothing is on the disk for certain before `finish`."""

    def __init__(self, path: Path, hashed: bool = True) -> None:
        # The thread asks for the interpreter three times a block. At Python's own 5 ms each time it would work no faster than this one.
        sys.setswitchinterval(_SWITCH)
        self._file = path.open("wb", buffering=0)
        self._sha = hashlib.sha256() if hashed else None
        self._rows: list[bytes] = []
        self._size = 0
        self._unsynced = 0
        self._thread = ThreadPoolExecutor(1)
        self._under_way: deque[Future[None]] = deque()

    def add(self, raw: bytes) -> None:
        """One row, without its line end."""
        self._rows.append(raw)
        self._size += len(raw)
        if self._size >= _BLOCK:
            self._send()

    def _send(self) -> None:
        while len(self._under_way) >= _WAITING:
            self._under_way.popleft().result()
        self._under_way.append(self._thread.submit(self._write, self._rows))
        self._rows, self._size = [], 0

    def _write(self, rows: list[bytes]) -> None:
        # One block: hashing and writing then leave the interpreter alone for as long as they take.
        block = b"\n".join([*rows, b""])
        if self._sha is not None:
            self._sha.update(block)
        self._unsynced += len(block)
        left = memoryview(block)
        while left:
            left = left[self._file.write(left) :]
        if self._unsynced >= _SYNC:
            os.fdatasync(self._file.fileno())
            self._unsynced = 0

    def finish(self) -> str:
        """Bring everything to the disk. Returns the SHA-256 of the file, if it was to be hashed."""
        if self._rows:
            self._send()
        for writing in self._under_way:
            writing.result()
        os.fsync(self._file.fileno())
        self.close()
        return self._sha.hexdigest() if self._sha is not None else ""

    def close(self) -> None:
        """Give the file up, or, after `finish`, nothing."""
        self._thread.shutdown(wait=True)
        # Some file systems tell of a full disk only here; the file is given up anyway.
        with contextlib.suppress(OSError):
            self._file.close()
