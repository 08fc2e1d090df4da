"""The evaluator in this process's own hands, for who has no service: the same results as the client's.

Candidates run in the evaluator's sandbox, never here. Needs `kernelmill[eval]`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures

from kernelmill.evaluate.evaluator import Evaluator, Options, Pair
from kernelmill.evaluate.score import rewards
from kernelmill.rl.background import Background
from kernelmill.rl.client import Ask, Reward, RewardUnavailable


class LocalGrader:
    """Judges `workers` candidates at a time. Close it: it keeps warm processes."""

    def __init__(
        self, reward: str = "default", options: Options | None = None, workers: int | None = None
    ) -> None:
        rewards.find(reward)
        self._reward = reward
        self._evaluator = Evaluator(options, workers)
        self._turns = asyncio.Semaphore(self._evaluator.workers)
        self._background = Background("kernelmill evaluator")

    def close(self) -> None:
        """Also while the interpreter ends, when no thread can be started any more."""
        if not self._background.closed:
            self._background.close()
            self._evaluator.close()

    def submit(self, ask: Ask) -> concurrent.futures.Future[Reward]:
        return self._background.submit(self._grade(ask))

    async def _grade(self, ask: Ask) -> Reward:
        async with self._turns:
            verdict = await self._evaluator.evaluate(Pair("", ask.reference, ask.candidate, ask.entry_point))
        if verdict.status == "INFRA_ERROR":
            raise RewardUnavailable(f"the evaluator has trouble of its own: {verdict.error}")
        number = rewards.compute(verdict, [self._reward])[self._reward]
        return Reward.of(verdict.to_dict(), number)
