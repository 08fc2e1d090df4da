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


def duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def count(number: float) -> str:
    """`1234567` → `1.2M`."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= limit:
            return f"{number / limit:.1f}{unit}"
    return f"{number:.0f}"


def size(number: float) -> str:
    """`12345678` → `12.3 MB`."""
    for limit, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if number >= limit:
            return f"{number / limit:.1f} {unit}"
    return f"{number:.0f} bytes"


def money(cost: float | None) -> str:
    return "unknown cost" if cost is None else f"${cost:.4f}" if cost < 1 else f"${cost:.2f}"
