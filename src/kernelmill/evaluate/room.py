"""Room on a GPU: many use it together, or one has it alone. Who wants it alone is let in before those who come later."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_WORDS = (
    "out of memory",
    "cudaMalloc",
    "NVML_SUCCESS",  # of torch's allocator, on its way to say that memory is short
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
)


def memory_was_short(text: str) -> bool:
    """Whether an error says that the GPU had no memory left. Torch and CUDA say so in words alone."""
    return any(words in text for words in _WORDS)


class Room:
    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self._together = 0
        self._waiting = 0
        self._alone = False

    @asynccontextmanager
    async def with_others(self) -> AsyncIterator[None]:
        async with self._changed:
            await self._changed.wait_for(lambda: not self._alone and not self._waiting)
            self._together += 1
        try:
            yield
        finally:
            await self._left(together=1)

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        async with self._changed:
            self._waiting += 1
            try:
                await self._changed.wait_for(lambda: not self._alone and not self._together)
                self._alone = True
            finally:
                self._waiting -= 1
                self._changed.notify_all()
        try:
            yield
        finally:
            await self._left()

    async def _left(self, together: int = 0) -> None:
        # Shielded: who is cancelled leaves, too.
        async def leave() -> None:
            async with self._changed:
                self._together -= together
                self._alone = self._alone and bool(together)
                self._changed.notify_all()

        await asyncio.shield(asyncio.ensure_future(leave()))
