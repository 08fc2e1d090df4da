"""Folders of problem files: KernelBench's layout (`level1/9_Name.py`), and the command that makes its folder.

Standard library only.
"""

from __future__ import annotations

import re
from pathlib import Path

KERNELBENCH = "kernelbench"
"""Name of the KernelBench problem set, and of its folder in `data`."""
IMPORT = "kernelmill problems import ScalingIntelligence/KernelBench"
"""The command that makes that folder."""
LEVEL = re.compile(r"level_?(\d+)")
"""The name of a level's folder; the group is its number."""


def maker_of(place: Path | str) -> str:
    """The end of a message about a missing file: the command that makes it; empty where none is known."""
    path = Path(place)
    parts = path.parts
    if KERNELBENCH not in parts:
        return ""
    # A bare `kernelbench` means the set in `data`. The path may also be one of its levels or problems.
    folder = Path(*parts[: parts.index(KERNELBENCH) + 1])
    into = "" if folder in (Path("data") / KERNELBENCH, Path(KERNELBENCH)) else f" --into {folder}"
    return f": {IMPORT}{into} makes {'it' if folder == path else folder}"


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
