"""A function over many items, in as many processes as there are cores.

For work that Python does on one core at a time: parsing code, counting tokens. Results come in the order of the items, and only a
few items are under way at once, so memory does not grow with their number. Items should be chunks worth milliseconds of work:
each one is sent to another process and its result sent back. Short work is done in this process, where no other one pays.
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
"""So many items are done here before another process is started."""
_LOOK = 1.0
WAITING = 3
"""Items a process that are under way: one worked on, the others sent ahead."""


def cores() -> int:
    """Cores that this process may use, which may be fewer than the machine has."""
    return len(os.sched_getaffinity(0))


class Workers(Generic[T, R]):
    """Processes that work on what they are given; results come back in the order of the items.

    Use as a context manager. `function` must be importable by name and items must pickle; its errors are raised here.
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
        """Have one item worked on. Gives the results that must be taken before there is room for it."""
        if self._count < 2 or self._alone > 0:
            self._alone -= 1
            yield self._function(item)
            return
        if self._pool is None:
            # Not fork: the threads of pyarrow would be missing in the child, with their locks held.
            context = multiprocessing.get_context("forkserver")
            self._pool = ProcessPoolExecutor(self._count, context, _begin, (os.getpid(),))
        with _uninterrupted(), _nameless_main(), _deaths_told():
            self._under_way.append(self._pool.submit(self._function, item))
        if len(self._under_way) >= WAITING * self._count:
            yield self._next()

    def rest(self) -> Iterator[R]:
        """The results that have not been given yet."""
        while self._under_way:
            yield self._next()

    def _next(self) -> R:
        with _deaths_told():
            return self._under_way.popleft().result()


def mapped(function: Callable[[T], R], items: Iterable[T], processes: int | None = None) -> Iterator[R]:
    """`function(item)` for every item, in order."""
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
    """An interrupt comes when this is over: a pool that is half started can be neither used nor ended."""
    if threading.current_thread() is not threading.main_thread():
        yield  # others are never interrupted
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
    """A process that is started now does not run the caller's script again, which need not expect it."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _begin(parent: int) -> None:
    """In the worker: Ctrl-C goes to the whole process group, and the parent decides what happens; without a parent nobody does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """A worker is the child of a server process, so the system does not tell it that whoever it works for was killed."""
    while os.path.exists(f"/proc/{parent}/exe"):  # gone also where it is dead and not yet waited for
        time.sleep(_LOOK)
    os._exit(1)
