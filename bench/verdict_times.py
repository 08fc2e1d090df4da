"""How long a verdict without a GPU takes, beside another version of this project: both in one run.

    python bench/verdict_times.py CHECKOUT [--rounds N] [--least TIMES] [--name NAME]

CHECKOUT is a folder with the other version (`git worktree add CHECKOUT COMMIT`). The candidates are the honest ones of
this corpus, two at a time. The two versions take turns, in processes of their own, with the packages of this Python.
The machine is not always equally fast, so the ratio counts, not the seconds.

Must hold, beside commit c01c2dd, which ran the programs of a launch one after another: 2.4 times as fast in the median; and
beside commit 7975f38, which recorded no programs: 0.83 times (`--least 0.83 --name verdict_times_recording`). Writes NAME.json
into bench/results.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[1]
AT_ONCE = 2
TIMES_AS_FAST = 2.4


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--least", type=float, default=TIMES_AS_FAST)
    parser.add_argument("--name", default="verdict_times")
    given = parser.parse_args()
    from common import RESULTS, machine

    sides = {"this": HERE, "other": given.checkout.resolve()}
    runs: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    for _ in range(given.rounds):
        for side, folder in sides.items():
            runs[side].append(measured(folder))
            print(
                side,
                json.dumps({name: round(value, 3) for name, value in runs[side][-1].items()}),
                flush=True,
            )
    result = {"machine": machine(), "commits": {side: commit(folder) for side, folder in sides.items()}}
    result |= {side: found for side, rounds in runs.items() if (found := middle(rounds))}
    result["times_as_fast"] = round(result["other"]["median_s"] / result["this"]["median_s"], 2)
    (RESULTS / f"{given.name}.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    lines = unmet(result, given.least)
    for line in lines:
        print(f"NOT MET: {line}")
    return 1 if lines else 0


def unmet(result: dict[str, Any], least: float) -> list[str]:
    lines = []
    if result["times_as_fast"] < least:
        lines.append(f"{least} times as fast: {result['times_as_fast']}")
    if wrong := result["this"]["not_correct"]:
        lines.append(f"every honest candidate is correct: {wrong} are not")
    return lines


def measured(folder: Path) -> dict[str, float]:
    """One round of one version, in a process of its own."""
    environment = os.environ | {"PYTHONPATH": f"{folder / 'src'}{os.pathsep}{HERE}"}
    command = [sys.executable, "-c", "import verdict_times; verdict_times.one_round()"]
    done = subprocess.run(
        command, env=environment, cwd=HERE / "bench", stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def one_round() -> None:
    """In a process that imports the version to be measured."""
    from tests.evaluate.corpus import cases

    from kernelmill.evaluate.evaluator import Evaluator
    from kernelmill.evaluate.options import Options, Pair

    honest = [case for case in cases() if case.labels == {"correct"}]

    async def judged() -> list[Any]:
        turn = asyncio.Semaphore(AT_ONCE)
        with Evaluator(Options(device="cpu"), workers=AT_ONCE) as evaluator:
            await evaluator.start()

            async def one(case: Any) -> Any:
                async with turn:
                    return await evaluator.evaluate(
                        Pair(case.name, case.reference, case.code, case.entry_point)
                    )

            return await asyncio.gather(*map(one, honest))

    verdicts = asyncio.run(judged())
    walls = [verdict.cost["wall_s"] for verdict in verdicts]
    spent = [sum(verdict.cost["cpu_s"].values()) for verdict in verdicts]
    found = {
        "median_s": statistics.median(walls),
        "mean_s": statistics.mean(walls),
        "median_processor_s": statistics.median(spent),
        "candidates": len(verdicts),
        "not_correct": sum(verdict.verdict != "correct" for verdict in verdicts),
    }
    print(json.dumps(found))


def middle(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {name: round(statistics.median(one[name] for one in rounds), 3) for name in rounds[0]}


def commit(folder: Path) -> str:
    said = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=folder, stdout=subprocess.PIPE, text=True, check=True
    )
    return said.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
