"""Terminal output: safe printing, and formatting of counts, sizes, rates, durations and cost."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence

LINE = 80
"""Columns of a progress line: the width of the narrowest common terminal."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def plain(text: str) -> str:
    """Escape control codes, so that text cannot control the terminal."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def say(line: str) -> None:
    """Print a line on standard error. A closed pipe does not stop the work."""
    try:
        print(plain(line), file=sys.stderr, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def tell(line: str) -> None:
    """Print a line on standard output before the work. A closed pipe does not stop the work."""
    try:
        print(plain(line), flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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


def rate(done: int, seconds: float) -> str:
    """The rate in a readable unit: `3.2/s`, `12.0/min`, `4.5/h`; empty where nothing is done yet."""
    if not done or seconds <= 0:
        return ""
    speed = done / seconds
    for unit, factor in (("s", 1), ("min", 60), ("h", 3600)):
        if speed * factor >= 1:
            return f"{speed * factor:.{0 if speed * factor >= 100 else 1}f}/{unit}"
    return f"{speed * 86400:.2g}/day"


def fit(parts: Sequence[tuple[int, str]], width: int = LINE) -> str:
    """Join ranked parts into one line of at most `width` characters. Lower ranks get the space first.

    Parts that do not fit are dropped. The part with the lowest rank is always kept, truncated if necessary.
    """
    kept: dict[int, str] = {}
    room = width
    for place, (_, text) in sorted(enumerate(parts), key=lambda one: one[1][0]):
        # Escape first, so that the length counted is the length printed.
        text = plain(text).replace("\n", " ")
        needed = len(text) + (2 if kept else 0)
        if text and not kept and needed > room:
            text, needed = f"{text[: room - 1]}…", room
        if text and needed <= room:
            kept[place] = text
            room -= needed
    return "  ".join(kept[place] for place in sorted(kept))


def shorten(text: str, length: int) -> str:
    """Shorten a long name to its two ends."""
    if len(text) <= length:
        return text
    half = (length - 1) // 2
    return f"{text[: length - 1 - half]}…{text[-half:]}"
