"""File locks: one writing process at a time per file."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import IO

from kernelmill.errors import OutputError


def lock_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.lock")


def take_lock(path: Path, busy: str) -> IO[bytes]:
    """Take an exclusive lock on `path` until the returned file is closed. Creates a missing folder.

    The OS releases the lock when the process ends, however it ends. The lock file is never removed: after an
    unlink, a third process could lock a new file while the old one is still locked.
    """
    if not path.name or path.is_dir():
        raise OutputError(f"{path} is a folder, and cannot be written: name a file")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = lock_of(path).open("ab")
    except OSError as error:
        raise OutputError(f"{path} cannot be written ({error.strerror})") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise OutputError(busy) from None
    return lock


def share_lock(path: Path) -> IO[bytes] | None:
    """Keep writers out while the returned file is open.

    None if a writer holds the lock or there is no lock file.
    """
    try:
        lock = lock_of(path).open("rb")
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock
