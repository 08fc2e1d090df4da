"""The evaluator in this process, for use without a service: the same results as the client's.

Candidates run in the evaluator's sandbox, never in this process. Needs `kernelmill[eval]`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures

from kernelmill.base.event_loop_thread import EventLoopThread
from kernelmill.evaluate.evaluator import Evaluator
from kernelmill.evaluate.options import Options, Pair
from kernelmill.evaluate.score import rewards
from kernelmill.rl.client import Ask, Reward, RewardUnavailable


class LocalGrader:
    """Judges `workers` candidates at a time. It keeps warm processes, so close it."""

    def __init__(
        self, reward: str = "default", options: Options | None = None, workers: int | None = None
    ) -> None:
        rewards.find(reward)
        self._reward = reward
        self._evaluator = Evaluator(options, workers)
        self._turns = asyncio.Semaphore(self._evaluator.workers)
        self._loop_thread = EventLoopThread("kernelmill evaluator")

    def close(self) -> None:
        """Close the evaluator. This also works at interpreter exit, when no thread can be started."""
        if not self._loop_thread.closed:
            self._loop_thread.close()
            self._evaluator.close()

    def submit(self, ask: Ask) -> concurrent.futures.Future[Reward]:
        return self._loop_thread.submit(self._grade(ask))

    async def _grade(self, ask: Ask) -> Reward:
        async with self._turns:
            verdict = await self._evaluator.evaluate(Pair("", ask.reference, ask.candidate, ask.entry_point))
        if verdict.status == "INFRA_ERROR":
            raise RewardUnavailable(f"the evaluator has trouble of its own: {verdict.error}")
        number = rewards.compute(verdict, [self._reward])[self._reward]
        return Reward.of(verdict.to_dict(), number)
