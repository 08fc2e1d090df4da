"""What to do about a missing package: how to install it.

Imports only the standard library (and `errors`), because it runs where other packages are missing.
"""

from __future__ import annotations

import importlib.util

from kernelmill.errors import ConfigError


def install(*extras: str) -> str:
    """The install commands: uv for a checkout, pip for anywhere."""
    flags = " ".join(f"--extra {extra}" for extra in extras)
    return f"uv sync {flags}, or pip install 'kernelmill[{','.join(extras)}]'"


def require(what: str, *modules: str, extra: str) -> None:
    """Raise a one-line `ConfigError` where a module that `what` needs is not installed."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"{what} needs {', '.join(missing)}: {install(extra)}")
