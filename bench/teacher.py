"""The compiler as teacher on the bundled problems: how many become kernels that the evaluator calls correct.

    python bench/teacher.py [FOLDER] [--workers 2] [--keep FOLDER]
    python bench/teacher.py --device cuda --variants 3 [--workers 16] [--out FOLDER]

With a GPU the candidates are timed, and of several variants the fastest counts; the reward is the speed-up against the
fastest of eager and torch.compile. There it needs nothing but torch, triton and numpy.

Must hold, for the bundled ones: nine of ten are correct, with no call of torch's library left, and compile for sm_90.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import math
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from kernelmill.evaluate.evaluator import Evaluator, Options, Pair, environment
from kernelmill.evaluate.verdict import Verdict
from kernelmill.teacher.teacher import Teacher

BUNDLED = Path(__file__).parents[1] / "data" / "problems"
SHARE = 0.9


class Bench:
    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.turn = asyncio.Semaphore(given.workers)
        self.options = Options(device=given.device, targets=("sm_90",), timeout=180.0, call_timeout=60.0)

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
        **summed(rows),
    }
    if given.folder == BUNDLED:
        name = "teacher" if given.device == "cpu" else "teacher_gpu"
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
