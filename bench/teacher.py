"""The compiler as teacher on the bundled problems, with no GPU: how many become kernels that the evaluator calls correct.

    python bench/teacher.py [FOLDER] [--workers 2] [--keep FOLDER]

Must hold, for the bundled ones: nine of ten are correct, with no call of torch's library left, and compile for sm_90.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from common import save

from kernelmill.evaluate.evaluator import Evaluator, Options, Pair
from kernelmill.teacher.teacher import Teacher

BUNDLED = Path(__file__).parents[1] / "data" / "problems"
SHARE = 0.9


async def tried(problems: dict[str, str], workers: int, keep: Path | None) -> list[dict[str, Any]]:
    turn = asyncio.Semaphore(workers)
    options = Options(device="cpu", targets=("sm_90",), timeout=180.0, call_timeout=60.0)
    with Teacher(workers=workers) as teacher, Evaluator(options, workers=workers) as evaluator:

        async def one(name: str, code: str) -> dict[str, Any]:
            async with turn:
                written = await teacher.write(code)
                found = {
                    "problem": name,
                    "write_s": round(written.seconds, 2),
                    "extern": written.extern,
                    "status": "NOT_WRITTEN",
                    "error": written.error[:300],
                }
                if not written.error:
                    if keep is not None:
                        (keep / f"{name.replace('/', '_')}.py").write_text(written.code, encoding="utf-8")
                    verdict = await evaluator.evaluate(Pair(name, code, written.code))
                    target = verdict.compile.get("targets", {}).get("sm_90", {})
                    found |= {
                        "status": verdict.status,
                        "error": verdict.error[:300],
                        "compiles": bool(target.get("ok")),
                        "flags": [flag.code for flag in verdict.flags],
                        "judge_s": verdict.cost["wall_s"],
                    }
                print(found["problem"], found["status"], found["error"][:120].replace("\n", " "), flush=True)
                return found

        return await asyncio.gather(*(one(*problem) for problem in problems.items()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=BUNDLED)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="folder for what was written")
    given = parser.parse_args()
    if given.keep is not None:
        given.keep.mkdir(parents=True, exist_ok=True)
    files = sorted(given.folder.rglob("*.py"), key=lambda f: (f.parent, int(f.name.partition("_")[0])))
    problems = {f"{file.parent.name}/{file.stem}": file.read_text(encoding="utf-8") for file in files}
    rows = asyncio.run(tried(problems, given.workers, given.keep))
    good = [row for row in rows if row["status"] == "PASSED" and not row["extern"] and row["compiles"]]
    result = {
        "problems": len(rows),
        "correct_without_a_library_call_and_compiled": len(good),
        "by_status": dict(Counter(row["status"] for row in rows)),
        "with_extern": sum(bool(row["extern"]) for row in rows),
        "shape_specialised": sum("C14.shape_specialised" in row.get("flags", ()) for row in rows),
        "median_write_s": statistics.median(row["write_s"] for row in rows),
        "others": [row for row in rows if row not in good],
    }
    if given.folder == BUNDLED:
        save("teacher", result)
    else:
        print({key: value for key, value in result.items() if key != "others"})
    unmet = given.folder == BUNDLED and len(good) < SHARE * len(rows)
    if unmet:
        print(f"NOT MET: {len(good)} of {len(rows)}")
    return int(unmet)


if __name__ == "__main__":
    sys.exit(main())
