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

_BLOCK = 8 << 20
"""The thread has to wait for its turn at the interpreter twice a block, some milliseconds each time: small blocks would not pay."""


class RowFile:
    """Nothing is on the disk for certain before `finish`."""

    def __init__(self, path: Path, hashed: bool = True) -> None:
        self._file = path.open("wb", buffering=0)
        self._sha = hashlib.sha256() if hashed else None
        # Two, of which one is filled while the other is written. Made once: fresh memory costs more than the copying.
        self._filling, self._writing = bytearray(_BLOCK), bytearray(_BLOCK)
        self._filled = 0
        self._thread = ThreadPoolExecutor(1)
        self._under_way: Future[None] | None = None

    def add(self, raw: bytes) -> None:
        """One row, without its line end."""
        end = self._filled + len(raw)
        if end >= _BLOCK:
            self._send()
            end = len(raw)
            if end >= _BLOCK:
                self._wait()
                self._write(memoryview(raw + b"\n"))
                return
        self._filling[self._filled : end] = raw
        self._filling[end] = 10
        self._filled = end + 1

    def _send(self) -> None:
        self._wait()
        self._filling, self._writing = self._writing, self._filling
        self._under_way = self._thread.submit(self._write, memoryview(self._writing)[: self._filled])
        self._filled = 0

    def _wait(self) -> None:
        if self._under_way is not None:
            self._under_way.result()

    def _write(self, block: memoryview) -> None:
        if self._sha is not None:
            self._sha.update(block)
        while block:
            block = block[self._file.write(block) :]

    def finish(self) -> str:
        """Bring everything to the disk. Returns the SHA-256 of the file, if it was to be hashed."""
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
