"""Folders of problem files in KernelBench's layout: `level1/9_Name.py`."""

from __future__ import annotations

import re
from pathlib import Path

LEVEL = re.compile(r"level_?(\d+)")
"""The name of a level's folder; the group is its number."""


def level_folders(path: Path) -> list[Path]:
    """The level folders in a folder, or in its `KernelBench` if it is a checkout; else an empty list."""
    for folder in (path, path / "KernelBench"):
        found = [one for one in folder.glob("level*") if one.is_dir() and LEVEL.fullmatch(one.name)]
        if found:
            return sorted(found, key=natural)
    return []


def natural(path: Path | str) -> list[tuple[int, str]]:
    """A sort key that puts `2_b` before `10_a`; different names never compare equal."""
    pieces = re.split(r"(\d+)", str(path))
    found = [(int(piece), "") if piece.isdigit() and piece.isascii() else (-1, piece) for piece in pieces]
    return [*found, (-2, str(path))]
