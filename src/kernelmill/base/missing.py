"""Hints for missing files: which command makes them. Standard library only."""

from __future__ import annotations

from pathlib import Path

KERNELBENCH = "kernelbench"
"""Name of the KernelBench problem set, and of its folder in `data`."""
IMPORT = "kernelmill problems import ScalingIntelligence/KernelBench"
"""The command that makes that folder."""


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
