"""Put this process's memory into huge pages, so that forking it is cheap.

A fork copies an entry for each page, and the end of a process frees them: 57,000 entries of 4 KiB for a server
that has imported torch and triton, or about 100 of 2 MiB. A child that writes to a huge page copies only the
4 KiB that it writes to.
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

_HUGE = 2 << 20
_MADV_COLLAPSE = 25
"""Of Linux 6.1 and newer, whatever its setting for transparent huge pages. Older kernels refuse it, and forks
there stay as they are.
"""
_OWN_MEMORY = re.compile(r"([0-9a-f]+)-([0-9a-f]+) rw-p 0+ 00:00 0 *(?:\[heap\])?")


def collapse() -> int:
    """Collapse private memory into huge pages, where the kernel can. Returns how many were made."""
    advise = ctypes.CDLL(None, use_errno=True).madvise
    advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    made = 0
    for area in map(_OWN_MEMORY.fullmatch, Path("/proc/self/maps").read_text().splitlines()):
        if area is not None:
            first, end = -(-int(area[1], 16) // _HUGE) * _HUGE, int(area[2], 16)
            made += sum(
                advise(page, _HUGE, _MADV_COLLAPSE) == 0 for page in range(first, end - _HUGE + 1, _HUGE)
            )
    return made
