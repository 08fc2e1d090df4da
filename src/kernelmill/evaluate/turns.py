"""Turns on one GPU, among all processes that were forked with the same lock file.

Who times has the GPU alone: it shuts the gate, so that nobody new begins to work, and waits for those who do. The kernel
gives the locks of a process that dies back.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

_GATE, _WORK = 0, 1
"""Bytes of the lock's file."""


class Turns:
    def __init__(self) -> None:
        with tempfile.NamedTemporaryFile(delete=False) as file:
            self.fd = os.dup(file.fileno())
        os.unlink(file.name)

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._locked(_GATE, fcntl.LOCK_EX), self._locked(_WORK, fcntl.LOCK_EX):
            yield

    @contextmanager
    def beside_others(self) -> Iterator[None]:
        """A short piece of work."""
        with self._locked(_GATE, fcntl.LOCK_SH):
            fcntl.lockf(self.fd, fcntl.LOCK_SH, 1, _WORK)
        try:
            yield
        finally:
            fcntl.lockf(self.fd, fcntl.LOCK_UN, 1, _WORK)

    @contextmanager
    def _locked(self, place: int, how: int) -> Iterator[None]:
        fcntl.lockf(self.fd, how, 1, place)
        try:
            yield
        finally:
            fcntl.lockf(self.fd, fcntl.LOCK_UN, 1, place)
