"""A rollout: write, judge, and while it is wrong, say why and have it written again.

Where a rollout stands is never held in memory: it is read from what the writer and the grader have kept (`look`), and
each step leaves its result there. Going on after a kill and going on after a step are the same thing.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from kernelmill.base.control import Control
from kernelmill.evaluate.verdict import Verdict
from kernelmill.generate.rollouts.grading import Grader
from kernelmill.generate.rollouts.problems import Problem
from kernelmill.generate.rollouts.writer import Ended, Writer, Written
from kernelmill.llm.engine import CallFailed, Done, Messages, Outcome, Owed
from kernelmill.llm.prompts import Prompt

GAMMA = 0.4
"""What a reward is worth one turn earlier."""


class Turn(NamedTuple):
    asked: Messages
    """Everything that was said before this answer."""
    written: Written
    verdict: Verdict
    reward: float | None
    """None: masked."""


class Standing(NamedTuple):
    """How far a rollout is."""

    turns: list[Turn]
    """Those that are written and judged. A whole rollout may have none, where its first answer cannot be had."""
    asked: Messages
    """What the next answer answers."""
    written: Written | None
    """An answer that is not judged yet."""
    ended: str = ""
    """Why it is whole: correct, inconclusive, turns, or what the writer says; empty where it is not."""

    @property
    def whole(self) -> bool:
        return bool(self.ended)


class Rollouts:
    """Has rollouts written and judged. Knows neither who writes nor how it is judged."""

    def __init__(self, writer: Writer, grader: Grader, again: Prompt, turns: int, control: Control) -> None:
        self._writer = writer
        self._grader = grader
        self._again = again
        self._turns = turns
        self._control = control
        self._writing = asyncio.Semaphore(writer.at_once)
        # An answer that waits to be asked for again is not being written.
        control.on_pause(self._writing.release, self._writing.acquire)
        self.free = writer.free
        # More than can be written at a time, so that writing goes on while answers wait to be judged; not many more, so
        # that a slow judge is not buried.
        self.concurrency = writer.at_once + 2 * grader.workers

    def messages(self, item: Problem) -> Messages:
        return item.messages

    def key(self, item: Problem) -> str:
        return item.key

    def spent(self, item: Problem, key: str) -> list[float | None]:
        """What earlier runs paid for this rollout."""
        standing = self.look(item)
        written = [turn.written for turn in standing.turns] + [standing.written] * (
            standing.written is not None
        )
        return [cost for one in written if one is not None for cost in one.costs]

    async def settle(self, item: Problem, key: str) -> Outcome:
        standing = self.look(item)
        return Done({"standing": standing}) if standing.whole else Owed()

    def look(self, problem: Problem) -> Standing:
        """Where this rollout stands."""
        turns: list[Turn] = []
        asked = problem.messages
        while True:
            written = self._writer.known(problem, asked)
            if isinstance(written, Ended):
                return Standing(turns, asked, None, written.reason)
            verdict = None if written is None else self._grader.known(problem, written)
            if written is None or verdict is None:
                return Standing(turns, asked, written)
            turns.append(Turn(asked, written, verdict, self._grader.rewarded(verdict)))
            # What nobody can judge here cannot be repaired either.
            if verdict.verdict in ("correct", "inconclusive"):
                return Standing(turns, asked, None, verdict.verdict)
            if len(turns) == self._turns:
                return Standing(turns, asked, None, "turns")
            said = self._again.render(feedback=verdict.feedback)
            asked = [
                *asked,
                {"role": "assistant", "content": written.content},
                {"role": "user", "content": said},
            ]

    async def answer(self, item: Problem, key: str) -> None:
        """Take a rollout to its end. Raises `CallFailed` where it stays owed."""
        while not (standing := self.look(item)).whole:
            if self._control.stopping.is_set():
                raise CallFailed("the run was stopped")
            if standing.written is None:
                async with self._writing:
                    await self._writer.write(item, standing.asked)
            else:
                await self._grader.grade(item, standing.written)

    def check_breaker(self) -> None:
        self._writer.check_breaker()


def discounted(rewards: list[float | None]) -> list[float | None]:
    """For each turn, its reward and what came of it later. None from where on a reward is masked."""
    returns: list[float | None] = []
    after: float | None = 0.0
    for reward in reversed(rewards):
        after = None if reward is None or after is None else reward + GAMMA * after
        returns.append(after)
    return returns[::-1]
