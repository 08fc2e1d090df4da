"""Share out a GPU's memory: small tasks run together, large tasks get exclusive use.

First come, first served.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kernelmill.sandbox.gpu_vendors import VENDORS

ALL = 1.0
_JUDGING = 9
"""Upper bound on the memory for judging and timing, as a multiple of the bytes of a task's inputs, weights
and outputs (docs/evaluate.md)."""
_MAX_SHARED_FRACTION = 0.6
_ROUNDING = 1e-9


def memory_was_short(text: str) -> bool:
    """Whether an error says that the GPU ran out of memory.

    Torch and the vendors' libraries report this only in the message text.
    """
    return any(words in text for vendor in VENDORS for words in vendor.out_of_memory)


def share_of(task: int, memory: int) -> float:
    """The share of a GPU's memory that a task of this many bytes needs.

    A task that needs most of it gets `ALL`, which means exclusive use.
    """
    share = _JUDGING * task / memory
    return ALL if share > _MAX_SHARED_FRACTION else share


class MemoryShares:
    """Shares of one GPU's memory, granted in the order of the requests."""

    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self._queue: deque[object] = deque()
        self._there = 0
        self._used = 0.0

    @asynccontextmanager
    async def taking(self, share: float) -> AsyncIterator[None]:
        """Hold a share of the memory, from 0 (unknown or negligible) to `ALL` (exclusive use)."""
        ticket = object()
        async with self._changed:
            self._queue.append(ticket)
            try:
                await self._changed.wait_for(lambda: self._queue[0] is ticket and self._fits(share))
                self._there += 1
                self._used += share
            finally:
                self._queue.remove(ticket)
                self._changed.notify_all()
        try:
            yield
        finally:
            # Shielded, so that a cancelled task also releases its share.
            await asyncio.shield(asyncio.ensure_future(self._left(share)))

    def _fits(self, share: float) -> bool:
        if share == ALL:
            return not self._there
        return self._used + share <= ALL - _ROUNDING or not self._there

    async def _left(self, share: float) -> None:
        async with self._changed:
            self._there -= 1
            self._used = self._used - share if self._there else 0.0
            self._changed.notify_all()
