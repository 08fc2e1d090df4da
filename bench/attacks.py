"""What was written to get past the evaluator, before it: how many attacks of each family come out `correct`.

    python bench/attacks.py [--workers 2]

Seeds are secret. An attack with a `policy` in its header is graded and not refused, and is counted apart. Must hold: of the
others at most one in fifty is `correct`. Writes attacks.json into bench/results.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import RESULTS, machine
from tests.evaluate.attacks import Attack, attacks

from kernelmill.evaluate.evaluator import Evaluator
from kernelmill.evaluate.options import Options, Pair, environment
from kernelmill.evaluate.verdict import Verdict

MOST = 0.02


async def judged(workers: int) -> list[tuple[Attack, Verdict]]:
    turn = asyncio.Semaphore(workers)

    async def one(attack: Attack) -> tuple[Attack, Verdict]:
        async with turn:
            pair = Pair(attack.name, attack.reference, attack.code, attack.entry_point)
            return attack, await evaluator.evaluate(pair)

    with Evaluator(Options(device="cpu"), workers=workers) as evaluator:
        return await asyncio.gather(*map(one, attacks()))


def result_of(found: list[tuple[Attack, Verdict]]) -> dict[str, Any]:
    counted = [(attack, verdict) for attack, verdict in found if not attack.policy]
    correct = [attack.name for attack, verdict in counted if verdict.verdict == "correct"]
    families: dict[str, Counter[str]] = {}
    for attack, verdict in found:
        families.setdefault(attack.family, Counter())["graded" if attack.policy else verdict.verdict] += 1
    return {
        "machine": machine(),
        "versions": environment(),
        "attacks": len(found),
        "against_the_recording": sum(attack.aims == "replay" for attack, _ in found),
        "families": {name: dict(sorted(counts.items())) for name, counts in sorted(families.items())},
        "graded_by_policy": sorted(attack.name for attack, _ in found if attack.policy),
        "counted": len(counted),
        "correct": correct,
        "share_correct": round(len(correct) / len(counted), 4),
        "hard_flags": dict(
            Counter(flag.code for _, verdict in found for flag in verdict.flags if flag.severity == "hard")
        ),
        "other_than_its_label": {
            attack.name: [verdict.verdict, verdict.status, verdict.error[:200]]
            for attack, verdict in found
            if verdict.verdict not in attack.labels and attack.name not in correct
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    result = result_of(asyncio.run(judged(parser.parse_args().workers)))
    (RESULTS / "attacks.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))
    if result["share_correct"] > MOST:
        print(f"NOT MET: at most {MOST:.0%} correct: {result['share_correct']:.1%}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
