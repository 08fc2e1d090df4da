"""The seam between those who write candidates and everything else.

Whoever writes keeps what it wrote where a later run finds it, before `write` returns: `known` says what is there. So
a run that is killed pays for nothing twice, whoever writes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from kernelmill.generate.rollouts.problems import Problem
from kernelmill.llm.engine import Messages


@dataclass(frozen=True)
class Written:
    """One answer."""

    content: str
    """The text that holds the candidate, without thoughts."""
    reasoning: str = ""
    fault: str = ""
    """Why this is no whole answer, whatever its text says: it was cut, refused or empty."""
    no_candidate: bool = False
    """Whether the fault is the writer's own, so that there is no answer to judge: nobody is told that it is wrong."""
    finish: str | None = None
    seconds: float = 0.0
    """What the writing took, all tries together."""
    tokens_in: int | None = None
    """None where nobody counted, as `tokens_out` and `cost` (US dollars)."""
    tokens_out: int | None = None
    cost: float | None = None
    costs: tuple[float | None, ...] = ()
    """Of each try."""
    said: dict[str, Any] = field(default_factory=dict)
    """What the writer says of it: columns of the row."""


@dataclass(frozen=True)
class Ended:
    """There is no going on: the rollout ends with the turns before, if there are any."""

    reason: str


class Writer(Protocol):
    """Who writes candidates."""

    name: str
    """For the manifest: `llm:<model>`."""
    at_once: int
    """Answers that may be under way together."""
    free: bool
    """Whether they cost nothing."""

    def known(self, problem: Problem, messages: Messages) -> Written | Ended | None:
        """What was written for this, in this run or an earlier one."""
        ...

    async def write(self, problem: Problem, messages: Messages) -> None:
        """Write; afterwards it is known. Raises `CallFailed` where it stays owed."""
        ...

    def check_breaker(self) -> None:
        """Called twice a second: a chance to stop a run that gets nowhere."""
        ...
