"""Verification of KernelBook rows: judge `triton_code` against `python_code`, then keep or reject each row.

The evaluator's batch does the judging. It stores verdicts in a file beside the output, which makes the
command resumable. The rows are then read a second time, next to their verdicts.

A row is *verified* if the evaluator says correct, at any tier, with no hard flag. A row that this machine
cannot judge is inconclusive, and never counts as wrong. The truth of a row is the evaluator's verdict, with
three exceptions that are specific to Inductor's code:

- It uses private names of another torch. The ImportError or AttributeError says something about the installed
  torch, not about the kernel.
- Its sizes, and products of them, are constants. It must fail at other sizes, which the interpreter uses if a
  task is too large.
- In its original form, its kernels are strings for Inductor to compile, which the evaluator does not
  recognise as kernels.

It does not repair rows, and says no more about the quality of a correct kernel than its verdict does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from msgspec import UNSET

from kernelmill.base.rows import Drop, KernelBookRow, Row, RowReader, with_columns
from kernelmill.benchmarks.kernelbook.restate import Restated, restate
from kernelmill.benchmarks.kernelbook.tally import Tally
from kernelmill.errors import BadRow, SourceError
from kernelmill.evaluate.batch import Done, PairBatch, run
from kernelmill.evaluate.options import Pair
from kernelmill.evaluate.verdict import SIZE_DEPENDENT_STATUSES, Verdict, VerdictValue
from kernelmill.store.output import Output
from kernelmill.store.source import Source

Keep = Literal["correct", "all"]

_ANOTHER_TORCH = re.compile(
    r"^(?:ImportError|ModuleNotFoundError|AttributeError): .*'torch[.'_\w]*'|compiled with(?:out)? CUDA"
)
"""What Python and torch say about a name that this torch does not have, and about missing CUDA."""
_TEXTS = "A9.async_compile"
_NO_CODE = Drop("the row has no triton_code", "no triton_code")
_LICENCE = "not of an allowed licence"


class Task(NamedTuple):
    """A row to judge."""

    row: Row
    pair: Pair
    licences: list[str]
    restated: list[str]


class Unread(NamedTuple):
    """A row that is not judged, and why."""

    row: Row
    why: Drop
    licences: list[str]
    readable: bool = True


@dataclass(frozen=True, kw_only=True)
class Book(PairBatch):
    """KernelBook rows as pairs for the evaluator's batch.

    `source`, for messages, is the first of their files.
    """

    rows: Source
    licences: frozenset[str] | None = None
    """Lower case. A row must name a licence, and only licences listed here; None accepts any row."""
    as_is: bool = False
    """Judge the text unchanged, including names of another torch."""
    reject_bad: bool = False

    def pairs(self) -> Iterator[tuple[str, Pair]]:
        for task in self.tasks():
            if isinstance(task, Task):
                yield task.pair.key(self.options), task.pair

    def tasks(self) -> Iterator[Task | Unread]:
        """Yield every row of the source, up to the limit.

        Raises `BadRow` unless such rows are to be rejected.
        """
        read = RowReader(KernelBookRow)
        for row in self.rows.rows():
            if self.limit is not None and row.index >= self.limit:
                return
            try:
                yield self._task(row, read(row))
            except BadRow as bad:
                if not self.reject_bad:
                    raise
                yield Unread(row, Drop(bad.reason, "the row cannot be read"), [], readable=False)

    def _task(self, row: Row, book: KernelBookRow) -> Task | Unread:
        licences = book.licenses or [] if book.licenses is not UNSET else []
        if self.licences is not None and not _allowed(licences, self.licences):
            named = ", ".join(licences) if licences else "none is named"
            return Unread(row, Drop(f"{_LICENCE}: {named}", _LICENCE), licences)
        if book.triton_code is UNSET or not (book.triton_code or "").strip():
            return Unread(row, _NO_CODE, licences)
        code = str(book.triton_code)
        judged = Restated(code, []) if self.as_is else restate(code)
        name = str(row.index) if book.uuid is UNSET or book.uuid is None else str(book.uuid)
        pair = Pair(name, book.python_code, judged.code, book.entry_point or book.module_name)
        return Task(row, pair, licences, judged.names)


class Told(NamedTuple):
    """What the command reports about a judged row."""

    truth: VerdictValue
    reason: str
    """The reason in the rejected file; empty if the row is verified."""


def told(verdict: Verdict) -> Told:
    """Convert the evaluator's verdict to what this command reports."""
    hard = [flag.code for flag in verdict.flags if flag.severity == "hard"]
    said = " ".join((verdict.error or "").split())[:300]
    if hard:
        return Told("hack", f"hack ({verdict.status}): {', '.join(hard)}")
    if verdict.verdict == "correct":
        return Told("correct", "")
    if verdict.status == "FORMAT_ERROR" and any(flag.code == _TEXTS for flag in verdict.flags):
        return Told("inconclusive", "inconclusive (its kernels are texts for Inductor to compile)")
    if verdict.status == "RUNTIME_ERROR" and _ANOTHER_TORCH.search(said):
        return Told("inconclusive", f"inconclusive (needs another torch, or a GPU): {said}")
    if (
        verdict.status in SIZE_DEPENDENT_STATUSES
        and verdict.tier == "interpreter"
        and verdict.task.get("shrunk")
    ):
        return Told("inconclusive", f"inconclusive (too large to be judged without a GPU): {said}")
    return Told(verdict.verdict, f"{verdict.verdict} ({verdict.status}): {said}".removesuffix(": "))


def verify(book: Book, output: Output, keep: Keep) -> tuple[Tally, Done]:
    """Judge the remaining rows, then write every row to `output`, which is open.

    A row is kept, or rejected with a reason.
    """
    done = run(book)
    tally = Tally()
    with book.output.open("rb") as verdicts:
        for task in book.tasks():
            if isinstance(task, Unread):
                output.reject(task.row, task.why.reason, task.why.kind, readable=task.readable)
                tally.unread(task.why.kind, task.licences)
                continue
            record = _record(verdicts.readline(), task, book)
            verdict = Verdict.from_dict(record)
            truth, reason = told(verdict)
            kept = keep == "all" or truth == "correct"
            if kept:
                columns = {"verdict": record, "truth": truth, "restated": task.restated}
                output.keep(with_columns(task.row.raw, columns))
            else:
                output.reject(task.row, reason, f"{truth} ({verdict.status})", readable=True)
            tally.judged(truth, verdict, task.licences, kept)
        if verdicts.readline():
            raise SourceError(_changed(book.output))
    return tally, done


def _record(line: bytes, task: Task, book: Book) -> dict[str, Any]:
    """Return this row's verdict: the file has verdicts in row order."""
    record: dict[str, Any] = json.loads(line) if line else {}
    if (record.get("id"), record.get("key")) != (task.pair.id, task.pair.key(book.options)):
        raise SourceError(_changed(book.output))
    return record


def _changed(verdicts: Path) -> str:
    return f"{verdicts} or the source was changed while it was used: run the command again"


def _allowed(licences: list[str], allowed: frozenset[str]) -> bool:
    return bool(licences) and all(licence.strip().lower() in allowed for licence in licences)
