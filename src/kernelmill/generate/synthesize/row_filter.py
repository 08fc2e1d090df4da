"""Selection of the rollouts that become rows: all, the correct ones, or each problem's best.

Counts all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernelmill.base.rows import Drop, Row
from kernelmill.generate.synthesize import row as rows
from kernelmill.generate.synthesize.problems import CandidateRequest, PromptBuilder
from kernelmill.generate.synthesize.rollout import RolloutRunner, RolloutState, Turn
from kernelmill.generate.synthesize.settings import SynthesizeSettings
from kernelmill.generate.synthesize.statistics import Statistics


class SynthesizeStage:
    """The row handling of `synthesize`, before and after the answer. Rows must arrive in source order."""

    def __init__(
        self,
        settings: SynthesizeSettings,
        builder: PromptBuilder,
        rollouts: RolloutRunner,
        render: Callable[[CandidateRequest, RolloutState], bytes],
    ) -> None:
        self._keep, self._export = settings.keep, settings.export
        self.take = builder.take
        self._rollouts = rollouts
        self._render = render
        self._best: tuple[int, int | None] = (-1, None)
        self.statistics = Statistics(settings.export)

    def name(self, item: CandidateRequest) -> str:
        called = item.module.problem_name
        return f"{called} #{item.sample}" if item.samples > 1 else called

    def finish(self, row: Row, item: CandidateRequest, columns: dict[str, Any]) -> bytes | Drop:
        state: RolloutState = columns["state"]
        if not state.turns:
            self.statistics.too_long += 1
            return Drop(state.ended, "too long for the model")
        self.statistics.add(item.example_id, state.turns)
        if reason := self._unwanted(item, state.turns):
            return Drop(reason, f"not kept (--keep {self._keep})")
        return self._render(item, state)

    def _unwanted(self, problem: CandidateRequest, turns: list[Turn]) -> str:
        """Return why this rollout is not kept; empty if it is."""
        if self._keep == "all":
            return ""
        verdict = self._chosen(turns).verdict
        if verdict.verdict != "correct":
            return f"{verdict.verdict} ({verdict.status})"
        if self._keep == "fastest" and self._fastest(problem) != problem.sample:
            return "another candidate of this problem is faster, or as good and earlier"
        return ""

    def _fastest(self, problem: CandidateRequest) -> int | None:
        """Return a problem's best sample. Its rollouts are adjacent, so only the last result is cached."""
        if self._best[0] != problem.example_id:
            ranked = []
            for sample in range(problem.samples):
                state = self._rollouts.state_of(problem._replace(sample=sample))
                if state.finished and state.turns:
                    ranked.append((rows.rank(self._chosen(state.turns)), -sample))
            self._best = problem.example_id, -max(ranked)[1] if ranked else None
        return self._best[1]

    def _chosen(self, turns: list[Turn]) -> Turn:
        return turns[rows.chosen(turns, self._export)]
