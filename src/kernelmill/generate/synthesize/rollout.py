"""A rollout: write, judge, and while the answer is wrong, send feedback and have it written again.

The state of a rollout is never held in memory: `state_of` reads it from what the writer and the grader have
stored, and each step stores its result there. Resuming after a kill and continuing after a step are therefore
the same operation.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from kernelmill.base.control import Control
from kernelmill.evaluate.verdict import Verdict
from kernelmill.generate.synthesize.grading import Grader
from kernelmill.generate.synthesize.problems import CandidateRequest
from kernelmill.generate.synthesize.writer import Ended, Writer, WriterAnswer
from kernelmill.llm.engine import CallFailed, Done, Messages, Outcome, Pending
from kernelmill.llm.prompts import Prompt

GAMMA = 0.4
"""The discount of a reward for each turn before it."""


class Turn(NamedTuple):
    asked: Messages
    """The conversation before this answer."""
    written: WriterAnswer
    verdict: Verdict
    reward: float | None
    """None if masked."""


class RolloutState(NamedTuple):
    """The state of a rollout."""

    turns: list[Turn]
    """The turns that are written and judged.

    A finished rollout has none if its first answer could not be obtained.
    """
    asked: Messages
    """The conversation for the next answer."""
    written: WriterAnswer | None
    """An answer that has not been judged yet."""
    ended: str = ""
    """Why the rollout is finished; empty if it is not.

    One of correct, inconclusive, turns, or the writer's reason.
    """

    @property
    def finished(self) -> bool:
        return bool(self.ended)


class RolloutRunner:
    """Runs rollouts. Independent of the writer and of how answers are judged."""

    def __init__(self, writer: Writer, grader: Grader, again: Prompt, turns: int, control: Control) -> None:
        self._writer = writer
        self._grader = grader
        self._again = again
        self._turns = turns
        self._control = control
        self._writing = asyncio.Semaphore(writer.at_once)
        # An answer that waits for a retry does not hold a writing slot.
        control.on_pause(self._writing.release, self._writing.acquire)
        self.free = writer.free
        # More than the writer takes at a time, so that writing continues while answers wait to be judged. Not
        # many more, so that a slow judge does not build up a backlog.
        self.concurrency = writer.at_once + 2 * grader.workers

    def key(self, item: CandidateRequest) -> str:
        return item.key

    def spent(self, item: CandidateRequest, key: str) -> list[float | None]:
        """Return what earlier runs paid for this rollout."""
        state = self.state_of(item)
        written = [turn.written for turn in state.turns] + [state.written] * (state.written is not None)
        return [cost for one in written if one is not None for cost in one.costs]

    async def outcome(self, item: CandidateRequest, key: str) -> Outcome:
        state = self.state_of(item)
        return Done({"state": state}) if state.finished else Pending()

    def state_of(self, problem: CandidateRequest) -> RolloutState:
        """Read the rollout's state."""
        turns: list[Turn] = []
        asked = problem.messages
        while True:
            written = self._writer.known(problem, asked)
            if isinstance(written, Ended):
                return RolloutState(turns, asked, None, written.reason)
            verdict = None if written is None else self._grader.known(problem, written)
            if written is None or verdict is None:
                return RolloutState(turns, asked, written)
            turns.append(Turn(asked, written, verdict, self._grader.rewarded(verdict)))
            # An answer that cannot be judged here cannot be repaired either.
            if verdict.verdict in ("correct", "inconclusive"):
                return RolloutState(turns, asked, None, verdict.verdict)
            if len(turns) == self._turns:
                return RolloutState(turns, asked, None, "turns")
            said = self._again.render(feedback=verdict.feedback)
            asked = [
                *asked,
                {"role": "assistant", "content": written.content},
                {"role": "user", "content": said},
            ]

    async def answer(self, item: CandidateRequest, key: str) -> None:
        """Run a rollout to its end. Raises `CallFailed` if it stays unfinished."""
        while not (state := self.state_of(item)).finished:
            if self._control.stopping.is_set():
                raise CallFailed("the run was stopped")
            if state.written is None:
                async with self._writing:
                    await self._writer.write(item, state.asked)
            else:
                await self._grader.grade(item, state.written)

    def check_breaker(self) -> None:
        self._writer.check_breaker()


def discounted(rewards: list[float | None]) -> list[float | None]:
    """Return each turn's reward plus the discounted later ones.

    It is None for a masked turn and all turns before it.
    """
    returns: list[float | None] = []
    after: float | None = 0.0
    for reward in reversed(rewards):
        after = None if reward is None or after is None else reward + GAMMA * after
        returns.append(after)
    return returns[::-1]
