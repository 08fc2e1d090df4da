"""What to do about a missing package or file: how to install it, which command makes it.

Imports only the standard library (and `errors`), because it runs where other packages are missing.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from kernelmill.errors import ConfigError

KERNELBENCH = "kernelbench"
"""Name of the KernelBench problem set, and of its folder in `data`."""
IMPORT = "kernelmill problems import ScalingIntelligence/KernelBench"
"""The command that makes that folder."""


def install(*extras: str) -> str:
    """The install commands: uv for a checkout, pip for anywhere."""
    flags = " ".join(f"--extra {extra}" for extra in extras)
    return f"uv sync {flags}, or pip install 'kernelmill[{','.join(extras)}]'"


def require(what: str, *modules: str, extra: str) -> None:
    """Raise a one-line `ConfigError` where a module that `what` needs is not installed."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"{what} needs {', '.join(missing)}: {install(extra)}")


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
