"""Python source as a syntax tree, from any thread.

Up to Python 3.11.7 two threads that parse at once can fail with `SystemError: AST constructor recursion depth mismatch`
(the depth is counted for the interpreter, not for the call), and `warnings.catch_warnings` is no more safe.
"""

from __future__ import annotations

import ast
import os
import threading
import warnings

_one_at_a_time = threading.RLock()  # again in one thread: the collector may run code that parses


def parse_module(code: str) -> ast.Module:
    """Like `ast.parse`, and says nothing about `"\\d"` in somebody's string."""
    with _one_at_a_time, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(code)


def parse_expression(code: str) -> ast.expr:
    with _one_at_a_time:
        return ast.parse(code, mode="eval").body


def _renew() -> None:
    """In a child of a fork: the thread that held the lock is not there to give it back."""
    global _one_at_a_time
    _one_at_a_time = threading.RLock()


os.register_at_fork(after_in_child=_renew)
