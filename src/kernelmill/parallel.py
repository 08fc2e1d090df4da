"""A function over many items, in as many processes as there are cores.

For work that Python does on one core at a time: parsing code, counting tokens. Results come in the order of the items, and only a
few items are under way at once, so memory does not grow with their number. Items should be chunks worth milliseconds of work:
each one is sent to another process and its result sent back. Short work is done in this process, where no other one pays.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from typing import TypeVar

from kernelmill.errors import MillError

T = TypeVar("T")
R = TypeVar("R")

ALONE = 2
"""So many items are done here before another process is started."""
WAITING = 3
"""Items a process that are under way: one worked on, the others sent ahead."""


def cores() -> int:
    """Cores that this process may use, which may be fewer than the machine has."""
    return len(os.sched_getaffinity(0))


def mapped(function: Callable[[T], R], items: Iterable[T], processes: int | None = None) -> Iterator[R]:
    """`function(item)` for every item, in order. `function` and items must pickle; its errors are raised here."""
    waiting = iter(items)
    count = cores() if processes is None else processes
    for item in waiting if count < 2 else islice(waiting, ALONE):
        yield function(item)
    for item in waiting:
        yield from _in_processes(function, chain([item], waiting), count)


def _in_processes(function: Callable[[T], R], items: Iterator[T], count: int) -> Iterator[R]:
    # Not fork: the threads of pyarrow would be missing in the child, with their locks held.
    context = multiprocessing.get_context("forkserver")
    pool = ProcessPoolExecutor(count, context, _ignore_interrupts)
    under_way: deque[Future[R]] = deque()
    try:
        for item in items:
            under_way.append(pool.submit(function, item))
            if len(under_way) >= WAITING * count:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    except BrokenProcessPool as error:
        raise MillError("a worker process was killed (out of memory?): run the same command again") from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _ignore_interrupts() -> None:
    """Ctrl-C goes to the whole process group; the parent decides what happens."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
