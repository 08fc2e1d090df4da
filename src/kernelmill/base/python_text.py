"""Parse Python source, thread-safely.

Up to Python 3.11.7 two threads that parse at once can fail with `SystemError: AST constructor recursion depth
mismatch`, because the depth is counted per interpreter and not per call. `warnings.catch_warnings` is not
thread-safe either.
"""

from __future__ import annotations

import ast
import os
import threading
import warnings

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
