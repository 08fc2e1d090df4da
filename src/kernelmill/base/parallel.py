"""Map a function over many items in one worker process per core.

For CPU-bound Python work: parsing code, counting tokens. Results come in the order of the items. Only a few
items are in flight at once, so memory does not grow with their number. Items should be chunks worth
milliseconds of work, because each item and its result are sent between processes. Short jobs run in this
process, where starting workers would not pay.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from types import ModuleType
from typing import Generic, TypeVar

from kernelmill.errors import MillError

T = TypeVar("T")
R = TypeVar("R")

ALONE = 2
"""Items that are processed here before any worker is started."""
_LOOK = 1.0
WAITING = 3
"""Items in flight per worker: one being processed, the others sent ahead."""


def cores() -> int:
    """Number of cores that this process may use, which may be fewer than the machine has."""
    return len(os.sched_getaffinity(0))


class Workers(Generic[T, R]):
    """A pool of worker processes that returns results in the order of the items.

    Use as a context manager. `function` must be importable by name and items must pickle. Its exceptions are
    raised here.
    """

    def __init__(self, function: Callable[[T], R], processes: int | None = None) -> None:
        self._function = function
        self._count = cores() if processes is None else processes
        self._alone = ALONE
        self._pool: ProcessPoolExecutor | None = None
        self._under_way: deque[Future[R]] = deque()

    def __enter__(self) -> Workers[T, R]:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def give(self, item: T) -> Iterator[R]:
        """Submit one item. Yields the results that have to be taken first to keep the queue bounded."""
        if self._count < 2 or self._alone > 0:
            self._alone -= 1
            yield self._function(item)
            return
        if self._pool is None:
            # Not fork: pyarrow's threads would be missing in the child while their locks stay held.
            context = multiprocessing.get_context("forkserver")
            self._pool = ProcessPoolExecutor(self._count, context, _begin, (os.getpid(),))
        with _uninterrupted(), _nameless_main(), _deaths_told():
            self._under_way.append(self._pool.submit(self._function, item))
        if len(self._under_way) >= WAITING * self._count:
            yield self._next()

    def rest(self) -> Iterator[R]:
        """Yield the remaining results."""
        while self._under_way:
            yield self._next()

    def _next(self) -> R:
        with _deaths_told():
            return self._under_way.popleft().result()


def mapped(function: Callable[[T], R], items: Iterable[T], processes: int | None = None) -> Iterator[R]:
    """Yield `function(item)` for every item, in order."""
    with Workers(function, processes) as workers:
        for item in items:
            yield from workers.give(item)
        yield from workers.rest()


@contextmanager
def _deaths_told() -> Iterator[None]:
    try:
        yield
    except BrokenProcessPool as error:
        raise MillError("a worker process was killed (out of memory?): run the same command again") from error


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Defer SIGINT and SIGTERM to the end of the block: a half-started pool cannot be used or shut down."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python handles signals in the main thread only
        return
    came: list[int] = []
    kinds = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(kind, lambda number, _: came.append(number)) for kind in kinds]
    try:
        yield
    finally:
        for kind, handler in zip(kinds, before, strict=True):
            signal.signal(kind, handler)
        if came:
            signal.raise_signal(came[0])


@contextmanager
def _nameless_main() -> Iterator[None]:
    """Keep processes started in the block from running the caller's script again, which may not expect it."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _begin(parent: int) -> None:
    """Initialise a worker: ignore Ctrl-C, and exit when the parent is gone.

    Ctrl-C reaches the whole process group, and the parent decides what happens.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """Exit when `parent` is gone.

    It has to be polled: a worker is a child of the fork server, not of `parent`.
    """
    while os.path.exists(f"/proc/{parent}/exe"):  # also missing for a zombie
        time.sleep(_LOOK)
    os._exit(1)
