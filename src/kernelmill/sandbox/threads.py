"""Threads that wait for the replies of servers, and that an interrupt does not wait for."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol


class Closes(Protocol):
    def close(self) -> None: ...


@contextmanager
def threads(workers: int, *servers: Closes) -> Iterator[ThreadPoolExecutor]:
    """A pool whose work asks these servers. Whatever ends the block early, Ctrl-C above all, closes them.

    A thread cannot be ended, and a pool waits for its threads: without their servers, whose requests end with them, they come
    back at once.
    """
    with ThreadPoolExecutor(workers) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for server in servers:
                server.close()
            raise
