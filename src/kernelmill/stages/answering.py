"""A stage whose rows need an answer: plan, answer, write.

The source is streamed three times, so that memory does not grow with its size:

    plan     read and check every row, and drop it or give it a key; the journal has the answered keys.
             A bad row is found here, before anything is paid for, and `--dry-run` ends here.
    answer   answer the pending questions concurrently; each answer is in the journal before it counts.
    write    join rows and answers in source order, so the same answers give the same bytes.

After a kill at any moment, the same command plans again, finds what is answered, and resumes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from kernelmill.base.control import Control, Stats
from kernelmill.base.rows import TEST_ROWS, Drop, Row
from kernelmill.errors import BadRow, Interrupted
from kernelmill.llm.engine import CallFailed, Done, Failed, Outcome, Pending
from kernelmill.runner import Job, Tasks, work_through
from kernelmill.settings.base import RowSettings
from kernelmill.stages.progress import Progress
from kernelmill.store import Output, Source

Item = TypeVar("Item")
I_contra = TypeVar("I_contra", contravariant=True)
_LISTEN = 100
"""Rows after which a long pass yields to the event loop, so that Ctrl-C is handled."""
_SLOW_STOP = 4
"""Progress updates after which a slow stop is explained to the user."""


class Stage(Protocol[Item]):
    """The row handling of a stage, before and after the answer."""

    def take(self, row: Row) -> Item | Drop:
        """Decode a row. Raises `BadRow`."""
        ...

    def name(self, item: Item) -> str:
        """The item's name in the progress display."""
        ...

    def finish(self, row: Row, item: Item, columns: dict[str, Any]) -> bytes | Drop:
        """The output row, or why there is none."""
        ...


class Answerer(Protocol[I_contra]):
    """Answers a stage's questions: a model, or program analysis."""

    concurrency: int
    """The maximum number of questions answered at the same time."""
    free: bool
    """Whether its work costs nothing: then a run that is stopped does not wait for work in flight."""

    def key(self, item: I_contra) -> str:
        """Identifies the question; equal keys are answered once."""
        ...

    async def outcome(self, item: I_contra, key: str) -> Outcome:
        """The stored result: `Done`, `Failed`, or `Pending` if it is not answered yet. Calls nothing."""
        ...

    def spent(self, item: I_contra, key: str) -> list[float | None]:
        """The cost of each earlier answer in US dollars; None where it is not known."""
        ...

    async def answer(self, item: I_contra, key: str) -> None:
        """Answer a question and store the result; `outcome` returns it afterwards. Raises `CallFailed`."""
        ...

    def check_breaker(self) -> None:
        """Stop a run that makes no progress. Called twice a second."""
        ...


@dataclass
class Plan:
    """The work to do. Holds one key for each row, and nothing of the rows themselves."""

    rows: int = 0
    asked: int = 0
    """Rows that need an answer."""
    keys: list[str | None] = field(default_factory=list)
    """The key of each row; None for a row that is dropped or bad."""
    pending: dict[str, None] = field(default_factory=dict)
    """Keys that are not answered yet, in source order. A dict, used as an ordered set."""
    dropped: int = 0
    bad: int = 0


class Batch(Generic[Item]):
    """One run of a stage over a source."""

    def __init__(
        self,
        source: Source,
        stage: Stage[Item],
        answerer: Answerer[Item],
        stats: Stats,
        control: Control,
        settings: RowSettings,
    ) -> None:
        self.source = source
        self.stage = stage
        self.answerer = answerer
        self.stats = stats
        self.control = control
        self._reject = settings.on_bad_row == "reject"
        self._most = TEST_ROWS if settings.test_mode else None
        self._failures: dict[str, str] = {}
        self._stopping, self._told = 0, False

    def _taken(self) -> Iterator[tuple[Row, Item | Drop | BadRow]]:
        """Rows as the stage takes them. In test mode, up to the fifth one that needs an answer."""
        asked = 0
        for row in self.source.rows():
            if self.control.error is not None:
                raise self.control.error
            taken: Item | Drop | BadRow
            try:
                taken = self.stage.take(row)
            except BadRow as bad:
                if not self._reject:
                    raise
                taken = bad
            yield row, taken
            asked += not isinstance(taken, Drop | BadRow)
            if self._most is not None and asked >= self._most:
                return

    async def plan(self) -> Plan:
        plan = Plan()
        seen: set[str] = set()
        for _, taken in self._taken():
            plan.rows += 1
            if plan.rows % _LISTEN == 0:
                await asyncio.sleep(0)
            if isinstance(taken, Drop | BadRow):
                plan.keys.append(None)
                plan.dropped += isinstance(taken, Drop)
                plan.bad += isinstance(taken, BadRow)
                continue
            key = self.answerer.key(taken)
            plan.keys.append(key)
            plan.asked += 1
            if key in seen:
                continue
            seen.add(key)
            for cost in self.answerer.spent(taken, key):
                self.stats.spent_before += cost or 0.0
                self.stats.unknown_before += cost is None
            if isinstance(await self.answerer.outcome(taken, key), Pending):
                plan.pending[key] = None
        self.stats.answered_before = len(seen) - len(plan.pending)
        return plan

    def items(self) -> Iterator[Item]:
        """The items of all rows that are neither dropped nor bad."""
        for _, taken in self._taken():
            if not isinstance(taken, Drop | BadRow):
                yield taken

    async def answer(self, plan: Plan, progress: Progress) -> None:
        """Answer the pending questions. Raises what stopped the run, after the work in flight is done."""
        self.stats.total = len(plan.pending)
        if not plan.pending:
            return
        jobs = (Job(key, self.stage.name(item), (key, item)) for key, item in self.pending_items(plan))
        executor = Tasks(self._ask, min(self.answerer.concurrency, len(plan.pending)))
        with progress:
            await work_through(
                jobs, executor, self._finish, self.control,
                doing=self.stats.doing, tick=lambda: self._look(progress), paid=not self.answerer.free,
            )  # fmt: skip

    def pending_items(self, plan: Plan) -> Iterator[tuple[str, Item]]:
        """The pending questions with their keys, each once."""
        left = dict(plan.pending)
        for (_, taken), key in zip(self._taken(), plan.keys, strict=True):
            if key is not None and key in left:
                del left[key]
                assert not isinstance(taken, Drop | BadRow)
                yield key, taken
                if not left:
                    # No pending question is left in the rest of the source: do not read it.
                    return

    async def _ask(self, question: tuple[str, Item]) -> str | None:
        """Answer a question. Returns why it stays pending, if it does."""
        key, item = question
        try:
            await self.answerer.answer(item, key)
        except CallFailed as failed:
            return str(failed)
        return None

    def _finish(self, job: Job[tuple[str, Item]], failure: str | None) -> None:
        if failure is None:
            self.stats.done += 1
            return
        self._failures[job.key] = failure
        # A call that was not made because the run stopped has not failed.
        self.stats.failed += not self.control.stopping.is_set()

    def _look(self, progress: Progress) -> None:
        """Called twice a second: update the display, check the breaker, and explain a slow stop."""
        progress.show()
        self.answerer.check_breaker()
        self._stopping += self.control.stopping.is_set()
        if (
            self._stopping > _SLOW_STOP
            and not self._told
            and self.stats.in_flight
            and not isinstance(self.control.error, Interrupted)
        ):
            self._told = True
            progress.say(
                f"Stopping: {self.control.error}. Finishing {self.stats.in_flight} in flight; Ctrl-C stops at once."
            )

    async def write(self, plan: Plan, output: Output) -> None:
        """Join rows and answers in source order."""
        for (row, taken), key in zip(self._taken(), plan.keys, strict=True):
            if row.index % _LISTEN == 0:
                await asyncio.sleep(0)
            if isinstance(taken, BadRow):
                output.reject(row, taken.reason, "the row cannot be read")
            elif isinstance(taken, Drop):
                output.reject(row, taken.reason, taken.kind)
            else:
                assert key is not None
                outcome = await self.answerer.outcome(taken, key)
                if isinstance(outcome, Done):
                    made = self.stage.finish(row, taken, outcome.columns)
                    if isinstance(made, Drop):
                        output.reject(row, made.reason, made.kind)
                    else:
                        output.keep(made)
                elif isinstance(outcome, Failed):
                    output.reject(row, outcome.reason, "no usable answer", outcome.attempts)
                else:
                    reason = self._failures.setdefault(key, "not answered")
                    output.reject(row, reason, "the call failed; run again to ask again")

    @property
    def pending_after(self) -> int:
        """The number of questions that are still pending after this run."""
        return len(self._failures)
