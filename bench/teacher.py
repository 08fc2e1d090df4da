"""The compiler as teacher on the bundled problems: how many become kernels that the evaluator calls correct.

    python bench/teacher.py [FOLDER] [--workers 2] [--keep FOLDER]
    python bench/teacher.py --device cuda --variants 3 [--workers 16] [--out FOLDER]
    python bench/teacher.py FOLDER --device cuda --room [--seconds 400] [--out FOLDER]

With a GPU the candidates are timed, and of several variants the fastest counts; the reward is the speed-up against the
fastest of eager and torch.compile. There it needs nothing but torch, triton and numpy.

With --room, what counts is which problems of FOLDER a GPU judges at their own sizes and what memory that takes: no
baselines are timed, each row goes to evaluator_room.jsonl at once, the sums to evaluator_room.json.

Must hold, for the bundled ones: nine of ten are correct, with no call of torch's library left, and compile for sm_90.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import datetime
import json
import math
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from kernelmill.evaluate.evaluator import Evaluator
from kernelmill.evaluate.options import Options, Pair, environment
from kernelmill.evaluate.verdict import Verdict
from kernelmill.generate.inductor.teacher import Teacher

BUNDLED = Path(__file__).parents[1] / "data" / "problems"
SHARE = 0.9


class Bench:
    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.turn = asyncio.Semaphore(given.workers)
        self.options = Options(device=given.device, targets=("sm_90",), timeout=180.0, call_timeout=60.0)
        if given.room:
            self.options = dataclasses.replace(self.options, baselines=(), targets=())
        self.end = time.monotonic() + given.seconds

    async def tried(self, problems: dict[str, str]) -> list[dict[str, Any]]:
        workers = self.given.workers
        with (
            Teacher(workers=workers, tidy=self.given.device == "cpu") as self.teacher,
            Evaluator(self.options, workers=workers) as self.evaluator,
        ):
            return await asyncio.gather(*(self.best(*problem) for problem in problems.items()))

    async def best(self, name: str, code: str) -> dict[str, Any]:
        """Of its variants."""
        found = await asyncio.gather(*(self.one(name, code, number) for number in range(self.given.variants)))
        best = max(
            found, key=lambda row: (row["status"] == "PASSED", row.get("speedup") or 0.0, -row["variant"])
        )
        if self.given.variants > 1:
            best["speedups"] = [row.get("speedup") for row in found]
        return best

    async def one(self, name: str, code: str, variant: int) -> dict[str, Any]:
        async with self.turn:
            if time.monotonic() > self.end:
                return {
                    "problem": name,
                    "variant": variant,
                    "status": "NOT_TRIED",
                    "extern": [],
                    "write_s": 0.0,
                }
            written = await self.teacher.write(code, variant=variant)
            found = {
                "problem": name,
                "variant": variant,
                "write_s": round(written.seconds, 2),
                "extern": written.extern,
                "status": "NOT_WRITTEN",
                "error": written.error[:300],
            }
            if not written.error:
                if self.given.keep is not None:
                    file = self.given.keep / f"{name.replace('/', '_')}_{variant}.py"
                    file.write_text(written.code, encoding="utf-8")
                found |= _judged(await self.evaluator.evaluate(Pair(name, code, written.code)))
            if self.given.room:
                with (self.given.out / "evaluator_room.jsonl").open("a", encoding="utf-8") as rows:
                    rows.write(json.dumps(found) + "\n")
            print(
                name,
                variant,
                found["status"],
                found.get("speedup", ""),
                found["error"][:120].replace("\n", " "),
                flush=True,
            )
            return found


def _judged(verdict: Verdict) -> dict[str, Any]:
    target = verdict.compile.get("targets", {}).get("sm_90", {})
    found = {
        "status": verdict.status,
        "tier": verdict.tier,
        "error": verdict.error[:300],
        "compiles": bool(target.get("ok")),
        "flags": [flag.code for flag in verdict.flags],
        "judge_s": verdict.cost["wall_s"],
        "gpu_s": verdict.cost["stages"].get("gpu"),
        "task_bytes": verdict.task.get("own_bytes"),
        "memory": {k: v for k, v in verdict.cost.get("gpu", {}).items() if k.endswith("_gb")},
        "oracle": verdict.task.get("oracle"),
        "skipped": [check.name for check in verdict.checks if check.result == "skip"],
    }
    if verdict.perf is not None:
        perf = verdict.perf
        found |= {
            "speedup": round(perf.speedup, 3),
            "interval": [round(perf.speedup_lo, 3), round(perf.speedup_hi, 3)],
            "regime": perf.regime,
            "median_us": round(perf.median_us, 1),
            "baselines_us": {name: round(value, 1) for name, value in perf.baselines.items()},
            "reward": verdict.rewards.get("speedup"),
        }
    return found


def summed(rows: list[dict[str, Any]]) -> dict[str, Any]:
    good = [row for row in rows if row["status"] == "PASSED" and not row["extern"] and row["compiles"]]
    found = {
        "problems": len(rows),
        "correct_without_a_library_call_and_compiled": len(good),
        "by_status": dict(Counter(row["status"] for row in rows)),
        "with_extern": sum(bool(row["extern"]) for row in rows),
        "shape_specialised": sum("C14.shape_specialised" in row.get("flags", ()) for row in rows),
        "median_write_s": statistics.median(row["write_s"] for row in rows),
        "others": [row for row in rows if row not in good],
    }
    if timed := [row for row in good if "speedup" in row]:
        found["timed"] = {
            "problems": len(timed),
            "speedup_geometric_mean": round(
                math.exp(statistics.fmean(math.log(r["speedup"]) for r in timed)), 3
            ),
            "speedup_median": statistics.median(row["speedup"] for row in timed),
            "fast_1": sum(row["speedup"] > 1 for row in timed),
            "rows": timed,
        }
    return found


def of_room(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Which were judged at their own size, by what their status says."""
    tried = [row for row in rows if row["status"] not in ("NOT_WRITTEN", "NOT_TRIED")]
    none = ("UNSUPPORTED", "INFRA_ERROR")
    judged = [row for row in tried if row["tier"].startswith("gpu") and row["status"] not in none]
    return {
        "problems": len(rows),
        "by_status": dict(Counter(row["status"] for row in rows)),
        "judged_at_their_own_size": len(judged),
        "timed": sum("speedup" in row for row in judged),
        "no_room": [
            row["problem"] for row in tried if "memory" in row["error"] or "does not fit" in row["error"]
        ],
        "with_another_oracle": {row["problem"]: row["oracle"] for row in judged if row["oracle"]},
        "gpu_s": round(sum(row["gpu_s"] or 0.0 for row in tried), 1),
        "rows": rows,
    }


def unmet(found: dict[str, Any]) -> list[str]:
    lines = []
    count, good = found["problems"], found["correct_without_a_library_call_and_compiled"]
    if good < SHARE * count:
        lines.append(f"nine of ten are correct and compiled, with no call of the library: {good} of {count}")
    if found.get("device") and found.get("timed", {}).get("problems", 0) < good:
        lines.append("every correct one is timed")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=BUNDLED)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--variants", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--room", action="store_true", help="judge at their own sizes, without baselines")
    parser.add_argument("--seconds", type=float, default=1e6, help="no new problem is begun after these")
    parser.add_argument("--keep", type=Path, help="folder for what was written")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    given = parser.parse_args()
    for folder in (given.keep, given.out):
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
    files = sorted(given.folder.rglob("*.py"), key=lambda f: (f.parent, int(f.name.partition("_")[0])))
    problems = {f"{file.parent.name}/{file.stem}": file.read_text(encoding="utf-8") for file in files}
    start = time.monotonic()
    rows = asyncio.run(Bench(given).tried(problems))
    result = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": environment(),
        "device": _gpu() if given.device == "cuda" else None,
        "workers": given.workers,
        "variants": given.variants,
        "seconds": round(time.monotonic() - start, 1),
        **(of_room(rows) if given.room else summed(rows)),
    }
    if given.room:
        (given.out / "evaluator_room.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        print(json.dumps({key: value for key, value in result.items() if key != "rows"}, indent=1))
        return 0
    of = "" if given.folder == BUNDLED else f"_{given.folder.name.lower()}"
    name = f"teacher{of}{'' if given.device == 'cpu' else '_gpu'}"
    (given.out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    shown = {key: value for key, value in result.items() if key not in ("others", "timed")}
    print(json.dumps(shown | {"timed": {**result.get("timed", {}), "rows": None}}, indent=1))
    lines = unmet(result) if given.folder == BUNDLED else []
    for line in lines:
        print(f"NOT MET: {line}")
    return int(bool(lines))


def _gpu() -> str:
    import torch

    return str(torch.cuda.get_device_name())


if __name__ == "__main__":
    sys.exit(main())
