"""Nobody pays for a neighbour: honest kernels beside one that waits for the GPU, one whose reference does, one that never ends.

    python bench/neighbours.py PAIRS.jsonl [--honest 11] [--runs 3] [--throughput 90] [--kernelbench DIR] [--sample 8]

PAIRS.jsonl has kernels from elsewhere, wrapped as pairs (id, reference, candidate); none are shipped here. The honest ones
are the first that are correct when they are judged alone. Then `--throughput` candidates of the file are judged as
`kernelmill evaluate` does, and KernelBench's own evaluator is given a `--sample` of the same ones, one at a time. Runs on a
bare GPU box (standard library, numpy, torch, triton). Writes neighbours.json into --out.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from evaluator_gpu import kernelbench_on
from gpu_pairs import OFFENDERS

from kernelmill.evaluate.batch import PairBatch, run
from kernelmill.evaluate.evaluator import Evaluator
from kernelmill.evaluate.options import Options, Pair, environment
from kernelmill.evaluate.pairs import read_pairs
from kernelmill.evaluate.verdict import Verdict

SLOWER = 1.3
"""A batch may take its offender's limit and so many times what it takes without the offender."""


def told(verdict: Verdict) -> list[Any]:
    return [verdict.verdict, verdict.status, verdict.perf is not None]


async def honest_ones(
    evaluator: Evaluator, pairs: list[Pair], wanted: int
) -> tuple[list[Pair], dict[str, Any]]:
    """The first that are correct, and what each of them gets when nobody else is there."""
    found: list[Pair] = []
    for start in range(0, len(pairs), 2 * wanted):
        some = pairs[start : start + 2 * wanted]
        _, verdicts = await together(evaluator, some)
        found += [pair for pair in some if told(verdicts[pair.id]) == ["correct", "PASSED", True]]
        if len(found) >= wanted:
            break
    honest = found[:wanted]
    return honest, {pair.id: told(await evaluator.evaluate(pair)) for pair in honest}


async def together(evaluator: Evaluator, pairs: list[Pair]) -> tuple[float, dict[str, Verdict]]:
    start = time.monotonic()
    verdicts = await asyncio.gather(*(evaluator.evaluate(pair) for pair in pairs))
    return time.monotonic() - start, {verdict.id: verdict for verdict in verdicts}


async def beside_offenders(
    given: argparse.Namespace, options: Options, keep: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """`keep` gets what is known after each run."""
    pairs = list(read_pairs(given.pairs, None, None))
    random.Random(1).shuffle(pairs)
    with Evaluator(options) as evaluator:
        await evaluator.start()
        honest, alone = await honest_ones(evaluator, pairs, given.honest)
        print("alone", alone, flush=True)
        without = [await together(evaluator, honest) for _ in range(2)]
        base = min(seconds for seconds, _ in without)
        found: dict[str, Any] = {
            "honest": list(alone),
            "without_s": [round(s, 1) for s, _ in without],
            "beside": {},
        }
        for name, offender in OFFENDERS.items():
            runs = found["beside"][name] = []
            for _ in range(given.runs):
                seconds, verdicts = await together(evaluator, [offender, *honest])
                changed = {p.id: told(verdicts[p.id]) for p in honest if told(verdicts[p.id]) != alone[p.id]}
                bad = verdicts[offender.id]
                runs.append(
                    {
                        "seconds": round(seconds, 1),
                        "may_take_s": round(options.call_timeout + SLOWER * base, 1),
                        "changed": changed,
                        "offender": told(bad),
                        "error": bad.error[:200],
                        "notes": bad.perf.notes if bad.perf else [],
                    }
                )
                print(name, runs[-1], flush=True)
                keep(found)
    return found


def throughput(given: argparse.Namespace, options: Options) -> dict[str, Any]:
    """As `kernelmill evaluate PAIRS.jsonl` does it, from the start of the first process to the last verdict."""
    rows = given.pairs.read_text().splitlines()
    random.Random(2).shuffle(rows)
    source, output = given.out / "throughput_pairs.jsonl", given.out / "throughput_verdicts.jsonl"
    source.write_text("".join(f"{row}\n" for row in rows[: given.throughput]))
    start = time.monotonic()
    done = run(PairBatch(source, output, options, given.workers, force=True))
    seconds = time.monotonic() - start
    verdicts = [json.loads(line) for line in output.read_text().splitlines()]
    source.unlink()
    return {
        "candidates": done.judged,
        "seconds": round(seconds, 1),
        "a_minute": round(60 * done.judged / seconds, 1),
        "verdicts": dict(Counter(f"{row['verdict']} {row['status']}" for row in verdicts)),
        "timed": sum(row["perf"] is not None for row in verdicts),
        "cpu_s": {
            stage: round(sum(v["cost"]["cpu_s"].get(stage, 0.0) for v in verdicts), 1)
            for stage in ("static", "interpreter", "compile", "gpu", "baselines")
        },
        "median_stage_s": {
            stage: round(statistics.median(v["cost"]["stages"].get(stage, 0.0) for v in verdicts), 2)
            for stage in ("interpreter", "compile", "gpu")
        },
    }


def unmet(found: dict[str, Any]) -> list[str]:
    lines = []
    for name, runs in found.get("beside", {}).get("beside", {}).items():
        wanted = ["incorrect", "TIMEOUT", False] if name == "never ends" else ["correct", "PASSED", True]
        for number, one in enumerate(runs):
            if one["changed"]:
                lines.append(f"{name}, run {number}: neighbours changed: {one['changed']}")
            if one["offender"] != wanted:
                lines.append(f"{name}, run {number}: {one['offender']} {one['error']}")
            if one["seconds"] > one["may_take_s"]:
                lines.append(f"{name}, run {number}: {one['seconds']} s, allowed {one['may_take_s']}")
    if "throughput" in found and found["throughput"]["a_minute"] < 40:
        lines.append(f"40 candidates a minute: {found['throughput']['a_minute']}")
    return lines


def _save(folder: Path, found: dict[str, Any]) -> None:
    (folder / "neighbours.json").write_text(json.dumps(found, indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--honest", type=int, default=11)
    parser.add_argument("--runs", type=int, default=3, help="beside each offender; 0: none")
    parser.add_argument("--throughput", type=int, default=90, help="candidates; 0: none")
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--kernelbench", type=Path, help="a checkout of KernelBench")
    parser.add_argument("--sample", type=int, default=8, help="candidates for KernelBench's evaluator")
    parser.add_argument("--out", type=Path, default=Path("bench/results"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {"date": datetime.date.today().isoformat(), "versions": environment()}
    if given.runs:
        # Without baselines: they would be measured once and then be known, in some run or other. The same draws each time:
        # what changes is then the neighbours' doing.
        options = Options(device="cuda", baselines=(), seed=20261117)
        found["beside"] = asyncio.run(
            beside_offenders(given, options, lambda some: _save(given.out, found | {"beside": some}))
        )
        _save(given.out, found)
    if given.throughput:
        found["throughput"] = throughput(given, Options(device="cuda"))
        print("throughput", found["throughput"], flush=True)
        _save(given.out, found)
    if given.kernelbench:
        pairs = list(read_pairs(given.pairs, None, None))
        random.Random(2).shuffle(pairs)
        found["kernelbench"] = kernelbench_on(pairs[: given.sample], given.kernelbench, given.out)
        print("kernelbench", found["kernelbench"], flush=True)
        _save(given.out, found)
    lines = unmet(found)
    for line in lines:
        print(f"NOT MET: {line}")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
