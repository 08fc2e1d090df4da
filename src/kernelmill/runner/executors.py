"""Executors: what runs the items of a run.

Not covered: more than one machine. An executor for that needs the same three things as `Tasks` and `Threads`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Generic, Protocol, Self, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
I_contra = TypeVar("I_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)


class Executor(AbstractContextManager[object], Protocol[I_contra, R_co]):
    """Runs items, `at_once` at a time. It is entered before the first item; an early end exits it with an error."""

    @property
    def at_once(self) -> int: ...

    async def run(self, item: I_contra, /) -> R_co: ...


class Tasks(Generic[Item, Result]):
    """Awaits an async function."""

    def __init__(self, function: Callable[[Item], Awaitable[Result]], at_once: int) -> None:
        self._function, self.at_once = function, at_once

    async def run(self, item: Item, /) -> Result:
        return await self._function(item)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


class Closes(Protocol):
    def close(self) -> None: ...


class Threads(Generic[Item, Result]):
    """Calls a blocking function in threads. If the run ends early, closes the `servers` that they wait for.

    A thread cannot be killed, and a pool waits for its threads. Closing the servers ends their requests.
    """

    def __init__(self, function: Callable[[Item], Result], at_once: int, *servers: Closes) -> None:
        self._function, self.at_once, self._servers = function, at_once, servers
        self._pool = ThreadPoolExecutor(at_once)

    async def run(self, item: Item, /) -> Result:
        return await asyncio.wrap_future(self._pool.submit(self._function, item))

    def call(self, item: Item) -> Result:
        """Run an item and wait for it, where the caller cannot await it."""
        return self._pool.submit(self._function, item).result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            for server in self._servers:
                server.close()
        self._pool.shutdown()
