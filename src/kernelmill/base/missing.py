"""What a user who misses a file is told: which command makes it. Standard library only."""

from __future__ import annotations

from pathlib import Path

KERNELBENCH = "kernelbench"
"""What the problems of KernelBench are called here, and their folder in `data`."""
IMPORT = "kernelmill problems import ScalingIntelligence/KernelBench"
"""The command that makes that folder."""


def maker_of(place: Path | str) -> str:
    """For the end of a message about something that is not there: which command makes it, where we know; else empty."""
    path = Path(place)
    parts = path.parts
    if KERNELBENCH not in parts:
        return ""
    # By its name alone it is the set in `data`; what is looked for may also be a level of it, or a problem.
    folder = Path(*parts[: parts.index(KERNELBENCH) + 1])
    into = "" if folder in (Path("data") / KERNELBENCH, Path(KERNELBENCH)) else f" --into {folder}"
    return f": {IMPORT}{into} makes {'it' if folder == path else folder}"
