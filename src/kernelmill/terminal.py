"""Speaking to whoever watches."""

from __future__ import annotations

import os
import sys


def say(line: str) -> None:
    """A line on standard error. Nobody listening any more is no reason to stop the work."""
    try:
        print(line, file=sys.stderr, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
