"""Selection of the rollouts that become rows: all, the correct ones, or each problem's best.

Counts all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernelmill.base.rows import Drop, Row
from kernelmill.generate.rollouts import row as rows
from kernelmill.generate.rollouts.problems import Asked, Problem
from kernelmill.generate.rollouts.rollout import Rollouts, Standing, Turn
from kernelmill.generate.rollouts.settings import SynthesizeSettings
from kernelmill.generate.rollouts.statistics import Statistics


class Keeping:
    """The row handling of `synthesize`, before and after the answer. Rows must arrive in source order."""

    def __init__(
        self,
        settings: SynthesizeSettings,
        asked: Asked,
        rollouts: Rollouts,
        render: Callable[[Problem, Standing], bytes],
    ) -> None:
        self._keep, self._export = settings.keep, settings.export
        self.take = asked.take
        self._rollouts = rollouts
        self._render = render
        self._best: tuple[int, int | None] = (-1, None)
        self.statistics = Statistics(settings.export)

    def name(self, item: Problem) -> str:
        called = item.module.problem_name
        return f"{called} #{item.sample}" if item.samples > 1 else called

    def finish(self, row: Row, item: Problem, columns: dict[str, Any]) -> bytes | Drop:
        standing: Standing = columns["standing"]
        if not standing.turns:
            self.statistics.too_long += 1
            return Drop(standing.ended, "too long for the model")
        self.statistics.add(item.example_id, standing.turns)
        if reason := self._unwanted(item, standing.turns):
            return Drop(reason, f"not kept (--keep {self._keep})")
        return self._render(item, standing)

    def _unwanted(self, problem: Problem, turns: list[Turn]) -> str:
        """Return why this rollout is not kept; empty if it is."""
        if self._keep == "all":
            return ""
        verdict = self._chosen(turns).verdict
        if verdict.verdict != "correct":
            return f"{verdict.verdict} ({verdict.status})"
        if self._keep == "fastest" and self._fastest(problem) != problem.sample:
            return "another candidate of this problem is faster, or as good and earlier"
        return ""

    def _fastest(self, problem: Problem) -> int | None:
        """Return a problem's best sample. Its rollouts are adjacent, so only the last result is cached."""
        if self._best[0] != problem.example_id:
            ranked = []
            for sample in range(problem.samples):
                standing = self._rollouts.look(problem._replace(sample=sample))
                if standing.whole and standing.turns:
                    ranked.append((rows.rank(self._chosen(standing.turns)), -sample))
            self._best = problem.example_id, -max(ranked)[1] if ranked else None
        return self._best[1]

    def _chosen(self, turns: list[Turn]) -> Turn:
        return turns[rows.chosen(turns, self._export)]
