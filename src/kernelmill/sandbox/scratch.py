"""Measure and remove what untrusted code writes to its scratch folder."""

from __future__ import annotations

import itertools
import os
import secrets
import time
from collections.abc import Iterator


def remove_tree(top: str, budget: float = float("inf")) -> bool:
    """Remove a folder filled by untrusted code: any depth (no recursion, no long path) and any file mode.

    Returns False if `budget` seconds have passed and something is left.
    """
    end = time.monotonic() + budget
    names = (os.path.join(top, f"{secrets.token_hex(8)}-{n}") for n in itertools.count())
    while folders := list(_unlink_files(top)):
        for folder in folders:
            for inner in _unlink_files(folder):
                os.rename(inner, next(names))
                if time.monotonic() > end:
                    return False
            os.rmdir(folder)
    os.rmdir(top)
    return True


def _unlink_files(folder: str) -> Iterator[str]:
    """Remove the files of a folder, and yield its subfolders with their mode set to 0700."""
    os.chmod(folder, 0o700)
    with os.scandir(folder) as entries:
        for entry in list(entries):
            if entry.is_dir(follow_symlinks=False):
                os.chmod(entry.path, 0o700)
                yield entry.path
            else:
                os.unlink(entry.path)


def holds_too_much(top: str, most_bytes: int, most_files: int) -> bool:
    """Whether a folder, which may be changing, exceeds these limits.

    Examines at most `most_files` entries.
    """
    folders, total, files = [top], 0, 0
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    found = entry.stat(follow_symlinks=False)
                    total += found.st_blocks * 512
                    files += 1
                    if total > most_bytes or files > most_files:
                        return True
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
        except OSError:
            # Removed or unreadable by now, or a path too long for the kernel: `bytes_written` covers those.
            continue
    return False


def bytes_written(pid: int) -> int:
    """Bytes a process has written to disk so far, also into files removed since.

    Returns 0 if the kernel does not say.
    """
    try:
        with open(f"/proc/{pid}/io", "rb") as lines:
            return next((int(line.split()[1]) for line in lines if line.startswith(b"write_bytes:")), 0)
    except OSError:
        return 0
