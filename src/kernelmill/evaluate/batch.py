"""Judge every pair of a file, as a stream, several at a time, resumable at any moment.

The source is read three times: to check and count it, to judge what is owed, and to write the verdicts in its
order. Pairs of the same content are judged once. Verdicts are appended to a journal beside the output as they
arrive. The output is written to a temporary file and renamed when it is complete; then the journal is
removed. So the same command resumes after any interruption. Verdicts in an existing output are reused, and
INFRA_ERROR rows are judged again.

A failure of one pair does not stop the others. Not covered: several machines.
"""

from __future__ import annotations

import asyncio
import contextlib
import filecmp
import os
import sqlite3
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernelmill.base.control import Control
from kernelmill.base.locks import take_lock
from kernelmill.errors import Interrupted, OutputError, SourceError
from kernelmill.evaluate.evaluator import Evaluator
from kernelmill.evaluate.options import Options, Pair, environment
from kernelmill.evaluate.pairs import read_pairs
from kernelmill.evaluate.progress import Progress
from kernelmill.evaluate.score.feedback import feedback
from kernelmill.evaluate.score.rewards import compute, find
from kernelmill.evaluate.score.summary import Summary
from kernelmill.evaluate.verdict import Verdict
from kernelmill.evaluate.verdict_journal import VerdictJournal, VerdictRow, encode
from kernelmill.runner import Job, Tasks, work_through


@dataclass(frozen=True)
class PairBatch:
    """What to judge and where to write it."""

    source: Path
    output: Path
    options: Options
    workers: int
    reward: str | None = None
    """Name of a reward to write as the column `reward`."""
    entry_point: str | None = None
    limit: int | None = None
    traces: Path | None = None
    """A folder for the programs of the candidates."""
    force: bool = False
    """Discard the existing output and its journal."""

    @property
    def journal(self) -> Path:
        return self.output.with_name(f"{self.output.name}.journal.jsonl")

    def pairs(self) -> Iterator[tuple[str, Pair]]:
        """Yield each pair with its key."""
        for pair in read_pairs(self.source, self.entry_point, self.limit):
            yield pair.key(self.options), pair


@dataclass(frozen=True)
class Done:
    summary: Summary
    judged: int
    """Number of distinct pairs that this run judged. The others had verdicts already."""
    written: bool
    """False if the output existed already and was complete."""


def run(batch: PairBatch) -> Done:
    """Judge what is owed and write the output.

    Raises `Interrupted` on Ctrl-C and SIGTERM, and `MillError` for what the user can fix.
    """
    if batch.reward is not None:
        find(batch.reward)  # report a wrong name before the first row is read
    try:
        return _run(batch)
    except OSError as error:
        problem = f"{error.filename or batch.output}: {error.strerror or error}"
        raise OutputError(f"{problem}; the same command goes on with what is judged") from error
    except sqlite3.OperationalError as error:
        raise OutputError(f"the list of what is judged, a temporary file: {error}") from error


def _run(batch: PairBatch) -> Done:
    with contextlib.ExitStack() as stack:
        stack.enter_context(
            take_lock(
                batch.output, f"another process is writing {batch.output}: wait for it, or name another -o"
            )
        )
        if batch.output.exists() and batch.output.samefile(batch.source):
            raise OutputError(f"{batch.output} is the source itself: name another output with -o")
        journal = VerdictJournal(batch.journal, batch.output)
        stack.callback(journal.close)
        for key, _ in batch.pairs():
            journal.want(key)
        if batch.force:
            batch.output.unlink(missing_ok=True)
            batch.journal.unlink(missing_ok=True)
        journal.load()
        owed = journal.owed()
        seconds = _judge(batch, journal, owed) if owed else None
        # Rows that an earlier run judged would distort the rate.
        summary = Summary(seconds=seconds if owed == journal.wanted() else None)
        written = _write(batch, journal, summary)
        batch.journal.unlink()
    return Done(summary, owed, written)


def _judge(batch: PairBatch, journal: VerdictJournal, owed: int) -> float:
    evaluator = Evaluator(
        batch.options, workers=batch.workers, traces=batch.traces
    )  # may raise, so before any progress is shown
    progress = Progress(owed, journal.wanted() - owed, evaluator.doing)
    try:
        with progress:
            asyncio.run(_judge_all(batch, journal, evaluator, progress))
    except (asyncio.CancelledError, KeyboardInterrupt, Interrupted):
        resume = "the same command without --force" if batch.force else "the same command"
        raise Interrupted(
            f"interrupted: {progress.done:,} of {owed:,} are judged and kept; {resume} resumes"
        ) from None
    return progress.seconds


async def _judge_all(
    batch: PairBatch, journal: VerdictJournal, evaluator: Evaluator, progress: Progress
) -> None:
    def keep(job: Job[Pair], verdict: Verdict) -> None:
        journal.add(verdict.to_dict() | {"key": job.key})
        progress.add(verdict)

    async def judge(pair: Pair) -> Verdict:
        return await _verdict(evaluator, pair)

    control, here = Control(), asyncio.current_task()
    assert here is not None
    with control.signals(), evaluator:
        control.watch([here], free=True)  # a signal cancels the start, and later the work
        if batch.options.tier != "static" and (missing := await evaluator.start()):
            progress.say(f"the sandbox of this machine lacks: {'; '.join(missing)}")
        # While a pair waits for the GPU, others use the processor.
        at_once = batch.workers * (2 if evaluator.tier.startswith("gpu") else 1)
        jobs = (Job(key, pair.id, pair) for key, pair in batch.pairs())
        await work_through(jobs, Tasks(judge, at_once), keep, control, known=journal, tick=progress.show)


async def _verdict(evaluator: Evaluator, pair: Pair) -> Verdict:
    try:
        return await evaluator.evaluate(pair)
    except Exception as error:  # noqa: BLE001  a bug in the evaluator costs one row, not the whole run
        place = traceback.extract_tb(error.__traceback__)[-1]
        verdict = Verdict(pair.id, "INFRA_ERROR", "static", env=dict(environment()))
        verdict.error = f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"
        verdict.rewards = compute(verdict)
        verdict.feedback = feedback(verdict)
        return verdict


def _write(batch: PairBatch, journal: VerdictJournal, summary: Summary) -> bool:
    """Write the verdicts in the source's order. Return False if the output has this content already."""
    part = batch.output.with_name(f".{batch.output.name}.part")
    try:
        with part.open("wb") as file:
            for key, pair in batch.pairs():
                if key not in journal:
                    raise SourceError(
                        f"{batch.source} was changed while it was judged: run the command again"
                    )
                row = finished(journal[key], pair.id, batch.reward)
                summary.add(row)
                file.write(encode(row))
            file.flush()
            os.fsync(file.fileno())
        if batch.output.exists() and filecmp.cmp(part, batch.output, shallow=False):
            return False
        part.replace(batch.output)
        return True
    finally:
        part.unlink(missing_ok=True)


def finished(row: VerdictRow, name: str, reward: str | None) -> VerdictRow:
    """A stored verdict as the row of this id: the same content may have been judged under another id."""
    row = {key: value for key, value in row.items() if key != "reward"} | {"id": name}
    if reward is not None:
        row["reward"] = compute(Verdict.from_dict(row), [reward])[reward]
    return row
