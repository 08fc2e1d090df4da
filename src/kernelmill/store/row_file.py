"""Write and hash a JSONL file in a background thread.

Rows are collected into blocks. The thread hashes and writes a block while the caller makes the next rows. An
error in the thread, such as a full disk, is raised by a later `add` or by `finish`.
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
"""Bytes per block. Larger blocks are no faster to hash, and some OS kernels take several times as long to
write them."""
_SYNC = 64 << 20
"""Bytes between syncs to disk, so that the final sync does not have to wait for everything."""
_WAITING = 32
"""Maximum number of blocks in the queue."""
_SWITCH = 0.0005


class RowFile:
    """A JSONL file being written. Nothing is guaranteed to be on disk before `finish`."""

    def __init__(self, path: Path, hashed: bool = True) -> None:
        # The thread takes the GIL three times per block. With Python's default switch interval of 5 ms each
        # time, it would be no faster than writing in the calling thread.
        sys.setswitchinterval(_SWITCH)
        self._file = path.open("wb", buffering=0)
        self._sha = hashlib.sha256() if hashed else None
        self._rows: list[bytes] = []
        self._size = 0
        self._unsynced = 0
        self._thread = ThreadPoolExecutor(1)
        self._under_way: deque[Future[None]] = deque()

    def add(self, raw: bytes) -> None:
        """Add one row, without its line end."""
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
        # Hash and write one large block: both then run without the GIL.
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
        """Write and sync everything.

        Returns the SHA-256 of the file, or an empty string if it is not hashed.
        """
        if self._rows:
            self._send()
        for writing in self._under_way:
            writing.result()
        os.fsync(self._file.fileno())
        self.close()
        return self._sha.hexdigest() if self._sha is not None else ""

    def close(self) -> None:
        """Close the file. Without `finish`, its content is incomplete. Safe to call again."""
        self._thread.shutdown(wait=True)
        # Some file systems report a full disk only here. The file is discarded in that case anyway.
        with contextlib.suppress(OSError):
            self._file.close()
