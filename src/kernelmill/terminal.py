"""Speaking to whoever watches."""

from __future__ import annotations

import os
import re
import sys

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def plain(text: str) -> str:
    """Text that cannot give orders to a terminal: control codes are shown, not sent."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def say(line: str) -> None:
    """A line on standard error. Nobody listening any more is no reason to stop the work."""
    try:
        print(plain(line), file=sys.stderr, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
