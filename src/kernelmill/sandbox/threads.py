"""A thread pool for blocking calls to servers that does not delay an interrupt."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol


class Closes(Protocol):
    def close(self) -> None: ...


@contextmanager
def threads(workers: int, *servers: Closes) -> Iterator[ThreadPoolExecutor]:
    """Yield a pool whose tasks call these servers. Closes them if the block ends early, mainly on Ctrl-C.

    A thread cannot be killed, and a pool waits for its threads. Closing the servers ends their requests, so
    the threads return at once.
    """
    with ThreadPoolExecutor(workers) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for server in servers:
                server.close()
            raise
