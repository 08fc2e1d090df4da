"""Format generated code with `ruff format`."""

from __future__ import annotations

import subprocess

from kernelmill.base.extras import install

_WIDTH = 110


class NoFormatter(RuntimeError):
    pass


def ruff_format() -> list[str]:
    """The command without its input files. Raises `NoFormatter` where ruff is not installed."""
    try:
        from ruff import find_ruff_bin
    except ImportError:
        raise NoFormatter(f"written code is formatted with ruff: {install('eval')}") from None
    return [find_ruff_bin(), "format", "--isolated", "--line-length", str(_WIDTH)]


def tidy(code: str) -> str:
    """Format Python code. Raises `NoFormatter` where ruff is missing, and `ValueError` for invalid Python."""
    command = [*ruff_format(), "--stdin-filename", "kernel.py", "-"]
    done = subprocess.run(command, input=code, capture_output=True, text=True, encoding="utf-8", check=False)
    if done.returncode != 0:
        raise ValueError(f"ruff could not format it: {done.stderr.strip()}")
    return done.stdout
