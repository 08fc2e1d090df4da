"""An event loop in its own thread, for asynchronous work submitted from any thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class EventLoopThread:
    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    @property
    def closed(self) -> bool:
        """Whether the thread has ended. This is also true in a forked process, which has no such thread."""
        return not self._thread.is_alive()

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run a coroutine.

        Wait with `result()`, or in another event loop with `await asyncio.wrap_future(...)`.
        """
        if self.closed:
            work.close()
            raise RuntimeError(
                f"{self._thread.name}: closed, or made in the process that this one was forked from"
            )
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self, last: Coroutine[Any, Any, object] | None = None) -> None:
        """Run `last`, cancel what is still running, and end the thread."""
        self.submit(_end(last)).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _end(last: Coroutine[Any, Any, object] | None) -> None:
    if last is not None:
        await last
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
