"""The interface between writers of candidates and the rest of `synthesize`.

A writer stores what it wrote, where a later run can find it, before `write` returns; `known` reads it back. A
killed run therefore pays for nothing twice, with any writer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from kernelmill.generate.synthesize.problems import CandidateRequest
from kernelmill.llm.engine import Messages


@dataclass(frozen=True)
class WriterAnswer:
    """One answer."""

    content: str
    """The text that holds the candidate, without the thoughts."""
    reasoning: str = ""
    fault: str = ""
    """Why this is not a complete answer, whatever its text says: truncated, refused or empty."""
    no_candidate: bool = False
    """Whether the writer itself failed: there is no answer to judge, and no feedback."""
    finish: str | None = None
    seconds: float = 0.0
    """The time that writing took, over all tries."""
    tokens_in: int | None = None
    """None if not reported; the same holds for `tokens_out` and `cost` (US dollars)."""
    tokens_out: int | None = None
    cost: float | None = None
    costs: tuple[float | None, ...] = ()
    """The cost of each try."""
    columns: dict[str, Any] = field(default_factory=dict)
    """Row columns that the writer provides."""


@dataclass(frozen=True)
class Ended:
    """The rollout cannot continue: it ends with the turns it has, if any."""

    reason: str


class Writer(Protocol):
    """The interface of a writer of candidates."""

    name: str
    """The name in the manifest: `llm:<model>`."""
    at_once: int
    """The maximum number of concurrent answers."""
    free: bool
    """Whether answers cost nothing."""

    def known(self, problem: CandidateRequest, messages: Messages) -> WriterAnswer | Ended | None:
        """Return what this run or an earlier one wrote for this, if anything."""
        ...

    async def write(self, problem: CandidateRequest, messages: Messages) -> None:
        """Write an answer; `known` returns it afterwards. Raises `CallFailed` if it stays unfinished."""
        ...

    def check_breaker(self) -> None:
        """Stop a run that makes no progress. Called twice a second."""
        ...
