"""Published kernels before the evaluator without a GPU: how long a verdict takes, at which size, and how many are refused.

    python bench/evaluator_published.py FILE [--workers 2] [--out FOLDER]

FILE has lines of JSON with id, reference and candidate. `seconds` is the judge's time in the interpreter, without the
compile stage. Must hold: two seconds in the mean over those that are correct: wrong ones end early. Writes
evaluator_published.json into bench/results.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from common import RESULTS, machine

from kernelmill.evaluate.evaluator import Evaluator
from kernelmill.evaluate.options import Options, Pair

MEAN_SECONDS = 2.0


async def judged(rows: list[dict[str, Any]], workers: int) -> list[dict[str, Any]]:
    turn = asyncio.Semaphore(workers)

    async def one(row: dict[str, Any]) -> dict[str, Any]:
        async with turn:
            began = time.perf_counter()
            verdict = await evaluator.evaluate(Pair(row["id"], row["reference"], row["candidate"]))
            found = {
                "id": row["id"],
                "seconds": round(time.perf_counter() - began, 2),
                "status": verdict.status,
                "size": verdict.task.get("version"),
                "elements": verdict.task.get("elements"),
                "error": verdict.error[:300],
            }
            print(json.dumps(found), flush=True)
            return found

    with Evaluator(Options(device="cpu", targets=()), workers=workers) as evaluator:
        # The first one of each worker starts it.
        await asyncio.gather(
            *(
                evaluator.evaluate(Pair("", rows[0]["reference"], rows[0]["candidate"]))
                for _ in range(workers)
            )
        )
        return await asyncio.gather(*map(one, rows))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    rows = [json.loads(line) for line in given.file.read_text("utf-8").splitlines()]
    found = asyncio.run(judged(rows, given.workers))
    seconds = [row["seconds"] for row in found if row["status"] == "PASSED"]
    result = {
        "machine": machine(),
        "kernels": len(found),
        "correct": len(seconds),
        "mean_s": round(statistics.mean(seconds), 2),
        "median_s": statistics.median(seconds),
        "longest_s": max(seconds),
        "by_status": Counter(row["status"] for row in found),
        "at_own_size": sum(row["size"] == "original" for row in found),
        "refused": {
            row["id"]: f"{row['status']}: {row['error']}" for row in found if row["status"] != "PASSED"
        },
        "seconds": {row["id"]: row["seconds"] for row in found},
    }
    (given.out / "evaluator_published.json").write_text(json.dumps(result, indent=1) + "\n")
    print(
        json.dumps(
            {key: value for key, value in result.items() if key not in ("seconds", "refused")}, indent=1
        )
    )
    return 0 if result["mean_s"] <= MEAN_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
