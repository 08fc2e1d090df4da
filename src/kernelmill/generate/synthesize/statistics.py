"""Statistics over a run's rollouts: pass@k, failures, the cost of a correct kernel.

pass@k is the probability that at least one of k candidates drawn from a problem's n is correct, 1 - C(n-c, k)
/ C(n, k), averaged over problems. k is at most the smallest n of any problem. The answer that counts is the
row's. Unfinished rollouts, and those too long for the model, are counted separately and are in no ratio.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from kernelmill.base.terminal import count, money
from kernelmill.evaluate.score.rewards import compute
from kernelmill.generate.synthesize.rollout import Turn
from kernelmill.generate.synthesize.row import Export, chosen

_FAST = ("fast_0", "fast_1", "fast_1.5", "fast_2")
_NUMBER = re.compile(r"0x[0-9a-f]+|\d[\d.,]*(e[+-]?\d+)?")
_KINDS = 1000
"""The number of distinct reasons counted separately within a status; later ones are counted together."""
_SHOWN = 3
_WIDTH = 100


def pass_at_k(n: int, correct: int, k: int) -> float:
    """Return the probability that k of n candidates include at least one of the `correct` ones."""
    return 1.0 - math.comb(n - correct, k) / math.comb(n, k)


def mean_pass_at(counts: Sequence[Sequence[int]], problems: int) -> dict[str, float]:
    """Return pass@k by k: 1, 2, 4 and so on, and the largest k that every problem has candidates for.

    `counts` has the candidates and the correct ones of each problem that has some, out of `problems`.
    """
    most = min((n for n, _ in counts), default=0)
    ks = sorted({most, *(2**power for power in range(most.bit_length()))}) if most else []
    return {str(k): round(sum(pass_at_k(n, c, k) for n, c in counts) / problems, 6) for k in ks}


class Statistics:
    """Counts rollouts as they arrive. Stores two numbers a problem."""

    def __init__(self, export: Export) -> None:
        self._export = export
        self._problems: dict[int, list[int]] = {}
        self.statuses: Counter[str] = Counter()
        self._reasons: dict[str, Counter[str]] = {}
        self.verdicts: Counter[str] = Counter()
        self._by_turn: Counter[int] = Counter()
        self._fast: Counter[str] = Counter()
        self._timed = 0
        self._tokens_in = self._tokens_out = 0
        self._uncounted = 0
        self._cost: float | None = 0.0
        self.pending = 0
        self.too_long = 0
        self._missing: dict[str, None] = {}

    def add(self, example: int, turns: list[Turn]) -> None:
        verdict = turns[chosen(turns, self._export)].verdict
        right = verdict.verdict == "correct"
        counts = self._problems.setdefault(example, [0, 0])
        counts[0] += 1
        counts[1] += right
        self.statuses[verdict.status] += 1
        self.verdicts[verdict.verdict] += 1
        if not right:
            reasons = self._reasons.setdefault(verdict.status, Counter())
            reason = _kind_of(verdict.error or verdict.feedback)
            reasons[reason if reason in reasons or len(reasons) < _KINDS else "other reasons"] += 1
        if right:
            self._by_turn[
                next(n for n, turn in enumerate(turns, 1) if turn.verdict.verdict == "correct")
            ] += 1
        self._timed += verdict.perf is not None
        for name, reward in compute(verdict, _FAST).items():
            self._fast[name] += reward == 1.0
        for turn in turns:
            self._missing |= dict.fromkeys(map(str, turn.verdict.env.get("sandbox_missing") or ()))
        for written in (turn.written for turn in turns):
            self._tokens_in += written.tokens_in or 0
            self._tokens_out += written.tokens_out or 0
            self._uncounted += written.tokens_out is None
            self._cost = None if written.cost is None or self._cost is None else self._cost + written.cost

    @property
    def rollouts(self) -> int:
        return self.verdicts.total()

    @property
    def correct(self) -> int:
        return self.verdicts["correct"]

    def report(self) -> dict[str, Any]:
        each = self.correct or None
        fast = {name: round(self._fast[name] / self.rollouts, 6) for name in _FAST} if self._timed else None
        return {
            "problems": len(self._problems),
            "problems_solved": sum(c > 0 for _, c in self._problems.values()),
            "rollouts": self.rollouts,
            "owed": self.pending,
            "too_long": self.too_long,
            "pass_at_k": mean_pass_at([*self._problems.values()], len(self._problems)),
            "fast_p": fast,
            "verdicts": dict(self.verdicts.most_common()),
            "statuses": dict(self.statuses.most_common()),
            "failures": self.failures(),
            "correct_at_turn": {str(turn): self._by_turn[turn] for turn in sorted(self._by_turn)},
            "tokens": {
                "in": self._tokens_in,
                "out": self._tokens_out,
                "answers_without_counts": self._uncounted,
            },
            "cost_usd": self._cost,
            "tokens_per_correct": (self._tokens_in + self._tokens_out) / each
            if each and not self._uncounted
            else None,
            "cost_per_correct_usd": self._cost / each if each and self._cost is not None else None,
        }

    def failures(self) -> dict[str, Any]:
        """Return the count and the most frequent reason of each status, the most frequent status first."""
        return {
            status: {
                "rollouts": number,
                "share": round(number / self.rollouts, 6),
                "most_often": dict(self._reasons[status].most_common(_SHOWN)),
            }
            for status, number in self.statuses.most_common()
            if status in self._reasons
        }

    def summary(self) -> list[tuple[str, str]]:
        report = self.report()
        passed = ", ".join(f"@{k} {share:.1%}" for k, share in report["pass_at_k"].items())
        lines = [("pass", passed or "no rollout finished")]
        lines.append(("solved", f"{report['problems_solved']:,} of {report['problems']:,} problems"))
        if report["fast_p"] is not None:
            lines.append(
                ("fast", ", ".join(f"{name} {share:.1%}" for name, share in report["fast_p"].items()))
            )
        if (tokens := report["tokens_per_correct"]) is not None:
            cost = money(report["cost_per_correct_usd"])
            lines.append(("each", f"{count(round(tokens))} tokens, {cost} for a correct kernel"))
        failures = report["failures"]
        for status, number in self.statuses.most_common():
            why = next(iter(failures.get(status, {}).get("most_often", ())), "")
            lines.append(("status", f"{number:,}  {status}{f' (most often: {why})' if why else ''}"))
        if self._missing:
            lines.append(("sandbox", f"this machine lacks {'; '.join(self._missing)}"))
        return lines


def _kind_of(error: str) -> str:
    """Normalise a reason so that candidates can be grouped: its first line, without numbers, truncated."""
    line = _NUMBER.sub("…", error.strip().partition("\n")[0])
    return line if len(line) <= _WIDTH else f"{line[:_WIDTH]}…"
