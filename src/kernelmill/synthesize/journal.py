"""The journal of this stage: answers with the time they took, and verdicts among the facts."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from kernelmill.llm.journal import Journal, JournalReader

STAGE = "synthesize"


class Stored(NamedTuple):
    response: str
    cost: float | None
    seconds: float


class SynthesisReader(JournalReader):
    """A journal that also tells how long an answer took."""

    def stored(self, key: str) -> list[Stored]:
        query = "SELECT response, cost, seconds FROM calls WHERE key = ? ORDER BY attempt"
        return [Stored(*row) for row in self._select(query, key)]


class SynthesisJournal(Journal, SynthesisReader):
    """The same, to be written."""


def open_journal(path: Path, dry_run: bool) -> SynthesisReader:
    """To be entered. A dry run only looks."""
    if dry_run:
        return SynthesisReader(path if path.exists() else None)
    return SynthesisJournal(path)
