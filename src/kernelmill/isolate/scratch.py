"""Remove what a stranger left in a scratch folder."""

from __future__ import annotations

import itertools
import os
import secrets
import time
from collections.abc import Iterator


def remove_tree(top: str, budget: float = float("inf")) -> bool:
    """Remove a folder that a stranger filled: of any depth (no recursion, no long path) and any mode.

    False when more than `budget` seconds have gone and something is left.
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
    """Remove the files of a folder, and give its folders, open to us."""
    os.chmod(folder, 0o700)
    with os.scandir(folder) as entries:
        for entry in list(entries):
            if entry.is_dir(follow_symlinks=False):
                os.chmod(entry.path, 0o700)
                yield entry.path
            else:
                os.unlink(entry.path)
