"""Parse Python source, thread-safely, and format it with `ruff format`.

Up to Python 3.11.7 two threads that parse at once can fail with `SystemError: AST constructor recursion depth
mismatch`, because the depth is counted per interpreter and not per call. `warnings.catch_warnings` is not
thread-safe either.
"""

from __future__ import annotations

import ast
import os
import subprocess
import threading
import warnings

from kernelmill.base.missing import install

_WIDTH = 110
_one_at_a_time = threading.RLock()  # reentrant: the garbage collector may run code that parses


def parse_module(code: str) -> ast.Module:
    """Parse a module like `ast.parse`, but without warnings about escapes such as `"\\d"`."""
    with _one_at_a_time, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(code)


def parse_expression(code: str) -> ast.expr:
    with _one_at_a_time:
        return ast.parse(code, mode="eval").body


def _renew() -> None:
    """Replace the lock after a fork: the thread that held it does not exist in the child."""
    global _one_at_a_time
    _one_at_a_time = threading.RLock()


os.register_at_fork(after_in_child=_renew)


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
