"""Published kernels before the recording: how many are recorded as programs, and run as such bit for bit.

    python bench/replay_published.py PAIRS.jsonl [--device cpu|cuda] [--seconds N] [--out DIR] [--workers N]

PAIRS.jsonl has kernels from elsewhere, wrapped as pairs (id, repo, reference, candidate); none are shipped here. With a GPU the
kernels' own times in the program's process and in the candidate's are compared, and candidates a minute counted, from the
start of the first process. After N seconds no further pair is begun. Runs on a bare GPU box (standard library, numpy, torch,
triton). Writes replay_published.json or replay_published_gpu.json, and a line for each pair as it is judged.

Must hold: of 100 kernels from 8 repositories at most 2 are refused for the recording's sake; without a GPU all others give the
candidate's bits. On an H200 the two times of 40 kernels of more than 20 us differ by at most 3 %, and 40 are judged a minute.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from kernelmill.evaluate.evaluator import Evaluator
from kernelmill.evaluate.options import Options, Pair, environment
from kernelmill.evaluate.verdict import Verdict

LEAST_US, APART = 20.0, 0.03
RECORDING = ("who computed the result", "its program")


def line_of(row: dict[str, Any], verdict: Verdict, seconds: float) -> dict[str, Any]:
    """What counts of one verdict. The first program is the interpreter's; on a GPU there is a second one."""
    replays = [check for check in verdict.checks if check.name.removeprefix("gpu:") == "replay"]
    perf = verdict.perf
    return {
        "id": row["id"],
        "repo": row.get("repo") or row["id"].partition("_")[0],
        "verdict": verdict.verdict,
        "status": verdict.status,
        "error": verdict.error[:300],
        "hard": [flag.code for flag in verdict.flags if flag.severity == "hard"],
        "replay": [[check.name, check.result, check.detail[:100]] for check in replays],
        "tier": verdict.tier,
        "seconds": round(seconds, 2),
        "interpreter_s": verdict.cost["stages"].get("interpreter"),
        "program_us": perf.program_us if perf else None,
        "own_us": perf.own_us if perf else None,
        "regime": perf.regime if perf else None,
    }


async def judged(
    rows: list[dict[str, Any]], given: argparse.Namespace, keep: Any
) -> tuple[list[dict[str, Any]], float]:
    begun = time.monotonic()
    turn = asyncio.Semaphore(given.workers * (2 if given.device == "cuda" else 1))
    lines: list[dict[str, Any]] = []
    with Evaluator(Options(device=given.device), workers=given.workers) as evaluator:
        await evaluator.start()

        async def one(row: dict[str, Any]) -> None:
            async with turn:
                start = time.monotonic()
                if start - begun > given.seconds:
                    return
                verdict = await evaluator.evaluate(Pair(row["id"], row["reference"], row["candidate"]))
                lines.append(line_of(row, verdict, time.monotonic() - start))
                keep(lines[-1] | {"at": round(time.monotonic() - begun, 2)})

        await asyncio.gather(*map(one, rows))
    return lines, time.monotonic() - begun


def result_of(lines: list[dict[str, Any]], seconds: float, device: str) -> dict[str, Any]:
    recorded = [one for one in lines if one["replay"] and one["replay"][-1][1] != "skip"]
    refused = [
        one
        for one in lines
        if any(text in one["error"] for text in RECORDING) or any(c.startswith("A16.") for c in one["hard"])
    ]
    bits = [one for one in recorded if "bit for bit" in one["replay"][-1][2]]
    honest = [one for one in recorded if one["verdict"] == "correct"]
    result = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": environment(),
        "device": device,
        "kernels": len(lines),
        "repositories": dict(Counter(one["repo"] for one in lines)),
        "by_verdict": dict(Counter(one["verdict"] for one in lines)),
        "recorded": len(recorded),
        "bit_for_bit": len(bits),
        "correct_with_other_bits": [one["id"] for one in honest if one not in bits],
        "refused_for_the_recording": {one["id"]: one["error"] or one["hard"] for one in refused},
        "others": {
            one["id"]: f"{one['verdict']} {one['status']}: {one['error'][:150]}"
            for one in lines
            if one["verdict"] != "correct" and one not in refused
        },
        "mean_interpreter_s": round(statistics.fmean(one["interpreter_s"] or 0.0 for one in honest), 2),
        "median_interpreter_s": round(statistics.median(one["interpreter_s"] or 0.0 for one in honest), 2),
        "median_s": round(statistics.median(one["seconds"] for one in lines), 2),
        "a_minute": round(60 * len(lines) / seconds, 1),
    }
    if device == "cuda":
        timed = [one for one in lines if one["own_us"] and one["own_us"] > LEAST_US]
        apart = {one["id"]: round(one["program_us"] / one["own_us"] - 1, 4) for one in timed}
        result["times"] = {
            "kernels": len(timed),
            "within": sum(abs(by) <= APART for by in apart.values()),
            "median_apart": round(statistics.median(map(abs, apart.values())), 4) if apart else None,
            "beyond": {name: by for name, by in apart.items() if abs(by) > APART},
            "us": {one["id"]: [round(one["program_us"], 1), round(one["own_us"], 1)] for one in timed},
        }
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--seconds", type=float, default=1e6)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    rows = [json.loads(line) for line in given.pairs.read_text("utf-8").splitlines()]
    name = "replay_published" + ("_gpu" if given.device == "cuda" else "")
    with (given.out / f"{name}.lines.tmp").open("w") as kept:

        def keep(line: dict[str, Any]) -> None:
            kept.write(json.dumps(line) + "\n")
            kept.flush()

        lines, seconds = asyncio.run(judged(rows, given, keep))
    result = result_of(lines, seconds, given.device)
    (given.out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
