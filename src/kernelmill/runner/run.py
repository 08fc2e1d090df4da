"""Run many items, some at a time.

An item is read from its source when a worker is free for it, never ahead. A `MillError` from an item, or any
other exception, stops the run: no further item starts, and it is raised once the work in flight has ended.
Work in flight is cancelled, unless it is paid for. An item whose failure should not stop the others returns
a result that says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

from kernelmill.base.control import Control
from kernelmill.errors import MillError, Stopped
from kernelmill.runner.executors import Executor
from kernelmill.runner.progress import ItemProgress

Item = TypeVar("Item")
Result = TypeVar("Result")
TICK = 0.5
"""Seconds between two looks at the progress."""
_PAUSED = 8
"""Times as many items may be begun as are worked on at once, the others waiting for a retry."""


class Job(NamedTuple, Generic[Item]):
    """One item of a stream."""

    key: str
    """The hash of what decides the result: jobs with one key are run once."""
    name: str
    """What the progress line calls it."""
    item: Item


def run_all(
    items: Sequence[Item],
    executor: Callable[[Sequence[Item]], Executor[Item, Result]],
    progress: ItemProgress,
    name: Callable[[Item], str],
    *,
    known: Callable[[Item], Result | None] = lambda _: None,
    done: Callable[[Result], None] = lambda _: None,
) -> list[Result]:
    """Run every item and return the results in the order of the items.

    `known` is asked first for the result of an earlier run. `executor` gets the items without one, and is not
    called if there are none. `done` gets each new result at once, in the order in which they come. Starts an
    event loop, so it cannot be called from one.
    """
    found = {at: result for at, item in enumerate(items) if (result := known(item)) is not None}
    owed = [(at, item) for at, item in enumerate(items) if at not in found]
    progress.total = len(owed)

    def finish(job: Job[Item], result: Result) -> None:
        found[int(job.key)] = result
        progress.done += 1
        done(result)

    async def run() -> None:
        jobs = (Job(str(at), name(item), item) for at, item in owed)
        runs = executor([item for _, item in owed])
        with progress:
            await work_through(jobs, runs, finish, Control(), doing=progress.doing, tick=progress.show)

    if owed:
        asyncio.run(run())
    return [found[at] for at in range(len(items))]


async def work_through(
    jobs: Iterator[Job[Item]],
    executor: Executor[Item, Result],
    done: Callable[[Job[Item], Result], None],
    control: Control,
    *,
    known: Container[str] = (),
    doing: dict[str, str] | None = None,
    tick: Callable[[], None] = lambda: None,
    paid: bool = False,
) -> None:
    """Run the jobs whose keys are not `known`, and give each result to `done` as it comes.

    `doing` has the keys and names of the jobs in progress, the longest-running first. `tick` is called twice
    a second. `control` may stop the run from outside; then its error is raised. With `paid`, a stop waits for
    the work in flight.
    """
    in_progress = {} if doing is None else doing

    async def work() -> None:
        try:
            while not control.stopping.is_set() and (job := next(jobs, None)) is not None:
                if job.key not in known and job.key not in in_progress:
                    in_progress[job.key] = job.name
                    try:
                        done(job, await executor.run(job.item))
                    finally:
                        del in_progress[job.key]
                await asyncio.sleep(0)  # signals and progress get their turn even if no job ever waits
        except MillError as error:
            control.stop(error)
        except BaseException:
            # A bug, or a cancelled run: the other workers must not go on.
            control.stop(Stopped("stopped by a fault of kernelmill's own"))
            raise

    def begin_another() -> None:
        running = sum(not worker.done() for worker in workers)
        if running - control.paused < executor.at_once and running < executor.at_once * _PAUSED:
            workers.append(asyncio.create_task(work()))

    with executor:
        workers = [asyncio.create_task(work()) for _ in range(executor.at_once)]
        ticking = asyncio.create_task(_ticks(tick))
        control.watch(workers, free=not paid)
        control.on_pause(begin_another)
        try:
            while running := [worker for worker in workers if not worker.done()]:
                await asyncio.wait(running)
        finally:
            control.off_pause(begin_another)
            for task in (ticking, *workers):
                task.cancel()
            await asyncio.gather(ticking, *workers, return_exceptions=True)
        for task in (ticking, *workers):
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error
        if control.error is not None:
            raise control.error


async def _ticks(tick: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(TICK)
        tick()
