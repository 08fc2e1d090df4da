"""What a plain install leaves out, and the commands that bring it: one place for how that is said.

Imports nothing but the standard library, for it speaks where other packages are missing.
"""

from __future__ import annotations

import importlib.util

from kernelmill.errors import ConfigError


def install(*extras: str) -> str:
    """The commands, by uv in a checkout and by pip anywhere."""
    flags = " ".join(f"--extra {extra}" for extra in extras)
    return f"uv sync {flags}, or pip install 'kernelmill[{','.join(extras)}]'"


def require(what: str, *modules: str, extra: str) -> None:
    """Raise, in one line, where a module that `what` needs is not installed."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"{what} needs {', '.join(missing)}: {install(extra)}")
