"""A stage over all its rows: plan, answer, write.

The source is streamed three times, so that memory does not grow with it:

    plan     every row is read, checked and dropped or given a key; the journal says which keys are answered.
             A bad row is found here, before anything is paid for, and `--dry-run` ends here.
    answer   what is owed is answered, many at once; each answer is durable in the journal before it counts.
    write    rows and answers are joined in the order of the source, so the same answers give the same bytes.

Killed at any moment, the same command plans again, finds what is answered, and goes on.
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
from kernelmill.stages.progress import Progress
from kernelmill.store import Output, Source

Item = TypeVar("Item")
I_contra = TypeVar("I_contra", contravariant=True)
_LISTEN = 100
"""Rows after which a long pass listens for Ctrl-C."""
_SLOW_STOP = 4
"""Looks at the progress after which a stop that goes on is explained."""


class Stage(Protocol[Item]):
    """What a stage does with a row before and after it is answered."""

    def take(self, row: Row) -> Item | Drop:
        """Decode a row. Raises `BadRow`."""
        ...

    def name(self, item: Item) -> str:
        """What the progress display calls it."""
        ...

    def finish(self, row: Row, item: Item, columns: dict[str, Any]) -> bytes | Drop:
        """The output row, or why there is none after all."""
        ...


class Answerer(Protocol[I_contra]):
    """Who answers: a model, or program analysis."""

    concurrency: int
    free: bool
    """Whether its work costs nothing: then a run that is stopped does not wait for what is in flight."""

    def key(self, item: I_contra) -> str: ...

    async def outcome(self, item: I_contra, key: str) -> Outcome: ...

    def spent(self, item: I_contra, key: str) -> list[float | None]: ...

    async def answer(self, item: I_contra, key: str) -> None: ...

    def check_breaker(self) -> None: ...


@dataclass
class Plan:
    """What is to be done. Holds one key a row and nothing of the rows themselves."""

    rows: int = 0
    asked: int = 0
    keys: list[str | None] = field(default_factory=list)
    pending: dict[str, None] = field(default_factory=dict)
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
        *,
        reject_bad_rows: bool,
        test_mode: bool,
    ) -> None:
        self.source = source
        self.stage = stage
        self.answerer = answerer
        self.stats = stats
        self.control = control
        self._reject = reject_bad_rows
        self._most = TEST_ROWS if test_mode else None
        self._failures: dict[str, str] = {}
        self._stopping, self._told = 0, False

    def _taken(self) -> Iterator[tuple[Row, Item | Drop | BadRow]]:
        """Rows as the stage takes them. In test mode, up to the fifth one that is asked about."""
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
        """What the stage takes of each row, without those it drops."""
        for _, taken in self._taken():
            if not isinstance(taken, Drop | BadRow):
                yield taken

    async def answer(self, plan: Plan, progress: Progress) -> None:
        """Answer what is owed. Raises what stopped the run, once the work in flight is done."""
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
        """What is owed, each question once."""
        left = dict(plan.pending)
        for (_, taken), key in zip(self._taken(), plan.keys, strict=True):
            if key is not None and key in left:
                del left[key]
                assert not isinstance(taken, Drop | BadRow)
                yield key, taken
                if not left:
                    # The rest of the source has nothing to ask: do not read it.
                    return

    async def _ask(self, question: tuple[str, Item]) -> str | None:
        """Have a question answered. Returns why it stays owed, if it does."""
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
        # A call that was held back when the run stopped has not failed: it was not made.
        self.stats.failed += not self.control.stopping.is_set()

    def _look(self, progress: Progress) -> None:
        """Twice a second: the display and the breaker; and a word where a stop takes a while."""
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
        """Join rows and answers in the order of the source."""
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
        """Questions that this run could not get answered."""
        return len(self._failures)
