"""Executors: what runs the items of a run.

Not covered: more than one machine. An executor for that needs the same three things as `Tasks` and `Threads`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from kernelmill.sandbox.threads import Closes, threads

Item = TypeVar("Item")
Result = TypeVar("Result")
I_contra = TypeVar("I_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)


class Executor(Protocol[I_contra, R_co]):
    """Runs items, `at_once` at a time. It is entered before the first item; an early end exits it with an error."""

    @property
    def at_once(self) -> int: ...

    async def run(self, item: I_contra, /) -> R_co: ...

    def __enter__(self) -> object: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None: ...


class Tasks(Generic[Item, Result]):
    """Awaits an async function."""

    def __init__(self, function: Callable[[Item], Awaitable[Result]], at_once: int) -> None:
        self._function, self.at_once = function, at_once

    async def run(self, item: Item, /) -> Result:
        return await self._function(item)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Threads(Generic[Item, Result]):
    """Calls a blocking function in threads. An early end closes the `servers` that it waits for."""

    def __init__(self, function: Callable[[Item], Result], at_once: int, *servers: Closes) -> None:
        self._function, self.at_once, self._servers = function, at_once, servers
        self._stack = ExitStack()

    async def run(self, item: Item, /) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._function, item)

    def __enter__(self) -> Self:
        self._pool = self._stack.enter_context(threads(self.at_once, *self._servers))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._stack.__exit__(kind, error, trace)
