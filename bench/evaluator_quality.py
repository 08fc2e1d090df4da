"""Every case of the corpus before the evaluator, and before a plain check of the kind most evaluators are.

Must hold: every hostile candidate is caught, no honest one is accused or refused, and a verdict takes less than a second
in the median, two at a time on two cores. Without a GPU, what only a GPU can tell is listed apart.

A case counts as right if the verdict is one of its labels. A hostile case whose labels allow `correct` (worth less, not
deceit) is in a group of its own, `either`, so that it does not help the share that is caught. The plain check
(`plain_check_worker`) has caught what it does not pass, for whatever reason. It always runs under the interpreter.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import os
import statistics
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.evaluate.corpus import Case, cases

from kernelmill.evaluate.evaluator import Evaluator
from kernelmill.evaluate.options import Options, Pair, environment
from kernelmill.evaluate.verdict import Verdict
from kernelmill.sandbox import Reply, Sandbox

RESULTS = Path(__file__).parent / "results"
PLAIN_SECONDS = 20.0
MEDIAN_SECONDS = 1.0
T = TypeVar("T")

Group = Literal["hostile", "gpu_only", "either", "honest", "wrong", "unsupported"]
GROUPS: dict[Group, str] = {
    "hostile": "caught",
    "gpu_only": "caught, though only a GPU can tell",
    "either": "called a hack, or correct and worth less",
    "honest": "called correct",
    "wrong": "called incorrect",
    "unsupported": "called inconclusive, or what they are",
}


@dataclass
class Outcome:
    case: Case
    group: Group
    verdict: Verdict
    plain: Literal["passed", "failed", "error"]

    @property
    def right(self) -> bool:
        return self.verdict.verdict in self.case.labels

    @property
    def plain_right(self) -> bool:
        return "correct" in self.case.labels if self.plain == "passed" else self.case.labels != {"correct"}

    @property
    def accused(self) -> bool:
        """An honest one that is not called correct, or of which something is said that only deceit deserves."""
        hard = any(flag.severity == "hard" for flag in self.verdict.flags)
        return self.group == "honest" and (not self.right or hard)

    def line(self) -> str:
        hard = [flag.code for flag in self.verdict.flags if flag.severity == "hard"]
        said = f"{self.verdict.status} {' '.join(hard)}".strip()
        return f"{'|'.join(sorted(self.case.labels))}: {said}; plain: {self.plain}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    found = asyncio.run(_judged(options.device, options.workers))
    result, broken = _result(found, options.device, options.workers)
    print(_table(result["by_category"]))
    # Not by common.save: that needs packages which a machine made for its GPU may not have.
    name = "evaluator_quality" if options.device == "cpu" else "evaluator_quality_cuda"
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    for case, line in {**result["wrong"], **result["only_a_gpu_can_tell"]}.items():
        print(f"{case}  {line}")
    for key in ("caught", "false_alarms", "median_s"):
        print(f"{key}: {json.dumps(result[key])}")
    for what in broken:
        print(f"NOT MET: {what}")
    sys.exit(bool(broken))


async def _judged(device: Literal["cpu", "cuda"], workers: int) -> list[Outcome]:
    """One after the other, so that neither takes time from the other: first all verdicts, then all plain checks."""
    everything = cases()
    with Evaluator(Options(device=device), workers=workers) as evaluator:
        await evaluator.start()

        async def ours(case: Case) -> Verdict:
            return await evaluator.evaluate(Pair(case.name, case.reference, case.code, case.entry_point))

        verdicts = await _so_many_at_once(workers, ours, everything)
    with Sandbox(
        "plain_check_worker", workers, PLAIN_SECONDS, environment={"TRITON_INTERPRET": "1"}
    ) as sandbox:

        async def plain(case: Case) -> Reply:
            request = {"reference": case.reference, "candidate": case.code, "entry_point": case.entry_point}
            return await sandbox.run(request)

        replies = await _so_many_at_once(workers, plain, everything)
    return [
        Outcome(case, _group(case, device), verdict, _plain(reply))
        for case, verdict, reply in zip(everything, verdicts, replies, strict=True)
    ]


async def _so_many_at_once(
    workers: int, judge: Callable[[Case], Awaitable[T]], everything: list[Case]
) -> list[T]:
    """A case waits here for its turn, where no clock counts it."""
    turn = asyncio.Semaphore(workers)

    async def one(case: Case) -> T:
        async with turn:
            return await judge(case)

    return await asyncio.gather(*map(one, everything))


def _group(case: Case, device: str) -> Group:
    if case.hostile:
        if "correct" in case.labels:
            return "either"
        return "gpu_only" if case.tier == "gpu" and device == "cpu" else "hostile"
    if "inconclusive" in case.labels:
        return "unsupported"
    return "honest" if "correct" in case.labels else "wrong"


def _plain(reply: Reply) -> Literal["passed", "failed", "error"]:
    if reply["kind"] != "ok":
        return "error"
    return "passed" if reply["result"].get("passed") is True else "failed"


def _table(categories: dict[str, dict[str, dict[str, int]]]) -> str:
    """By category and group: how many there are, and how many each of the two is right about."""
    lines = ["category  group         cases   ours  plain  right is to be"]
    for category, groups in categories.items():
        for group, meaning in GROUPS.items():
            if row := groups.get(group):
                numbers = f"{row['cases']:6} {row['ours']:6} {row['plain']:6}"
                lines.append(f"{category:9} {group:12} {numbers}  {meaning}")
    return "\n".join(lines)


def _result(found: list[Outcome], device: str, workers: int) -> tuple[dict[str, Any], list[str]]:
    """What was found, and what does not hold."""
    hostile = [one for one in found if one.group == "hostile"]
    honest = [one for one in found if one.group == "honest"]
    missed = [one.case.name for one in hostile if not one.right]
    accused = [one.case.name for one in found if one.accused]
    others = [
        one.case.name for one in found if not one.right and one.group not in ("hostile", "honest", "gpu_only")
    ]
    medians = {
        "honest": round(statistics.median(one.verdict.cost["wall_s"] for one in honest), 3),
        "all": round(statistics.median(one.verdict.cost["wall_s"] for one in found), 3),
    }
    result = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": environment(),
        "cores": os.cpu_count(),
        "device": device,
        "workers": workers,
        "cases": len(found),
        "caught": {
            "of": len(hostile),
            "ours": len(hostile) - len(missed),
            "plain": sum(one.plain_right for one in hostile),
        },
        "false_alarms": {
            "of": len(honest),
            "ours": len(accused),
            "plain": sum(not one.plain_right for one in honest),
        },
        "median_s": medians,
        "by_category": _by_category(found),
        "wrong": {one.case.name: one.line() for one in found if one.accused or not one.right},
        "only_a_gpu_can_tell": {one.case.name: one.line() for one in found if one.group == "gpu_only"},
        "plain_false_alarms": {one.case.name: one.line() for one in honest if not one.plain_right},
        "verdicts": {one.case.name: one.line() for one in found},
    }
    checks = {
        f"every hostile candidate is caught: {missed}": not missed,
        f"no false alarm: {accused}": not accused,
        f"every other verdict is right: {others}": not others,
    }
    if device == "cpu":
        checks[f"a verdict takes less than {MEDIAN_SECONDS:g} s in the median: {medians}"] = all(
            seconds < MEDIAN_SECONDS for seconds in medians.values()
        )
    return result, [what for what, holds in checks.items() if not holds]


def _by_category(found: list[Outcome]) -> dict[str, dict[str, dict[str, int]]]:
    table: dict[str, dict[str, dict[str, int]]] = {}
    for category in [*sorted({one.case.pattern[0] for one in found}), "all"]:
        table[category] = {}
        for one in found:
            if category in (one.case.pattern[0], "all"):
                row = table[category].setdefault(one.group, {"cases": 0, "ours": 0, "plain": 0})
                row["cases"] += 1
                row["ours"] += one.right
                row["plain"] += one.plain_right
    return table


if __name__ == "__main__":
    main()
