"""The evaluator on a GPU: candidates a minute with exclusive timing, KernelBench's own evaluator on the same ones, and how
far the times can be trusted.

    python bench/evaluator_gpu.py [--of-each 40] [--at-once 24] [--per-gpu 8] [--kernelbench DIR] [--aa 60] [--seconds 300]

Runs on a bare GPU box (standard library, numpy, torch, triton). DIR is a checkout of KernelBench; what that imports and
such a box lacks is stood in for. Writes evaluator_gpu.json into --out.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import datetime
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from gpu_pairs import SOFTMAX_AS_REFERENCE, pairs

from kernelmill.evaluate.evaluation import Evaluation
from kernelmill.evaluate.evaluator import Evaluator
from kernelmill.evaluate.options import Options, Pair, environment
from kernelmill.evaluate.verdict import Perf, Verdict

_ODD = 0.1
"""Who is further from the truth is shown whole."""
_THEIRS_S = 120
_THEIRS = """
import json, sys, types
def stand_in(name, **names):
    module = types.ModuleType(name)
    module.__dict__.update(names)
    sys.modules[name] = module
class BaseModel:
    def __init__(self, **values):
        self.__dict__.update({k: v for k, v in vars(type(self)).items() if not k.startswith("_")} | values)
nothing = lambda *a, **k: None
stand_in("requests"); stand_in("pydantic", BaseModel=BaseModel); stand_in("dotenv", load_dotenv=nothing)
stand_in("tqdm", tqdm=lambda x, *a, **k: x); stand_in("openai", OpenAI=nothing); stand_in("litellm", completion=nothing)
folder, reference, candidate = sys.argv[1:]
sys.path.insert(0, folder + "/src")
import torch
from kernelbench.eval import eval_kernel_against_ref
found = eval_kernel_against_ref(
    open(reference).read(), open(candidate).read(), num_correct_trials=5, num_perf_trials=100,
    measure_performance=True, backend="triton", device=torch.device("cuda:0"), precision=torch.float32,
)
print("RESULT", json.dumps({"compiled": found.compiled, "correct": found.correctness, "runtime": found.runtime}))
"""


async def throughput(evaluator: Evaluator, of_each: int, at_once: int, seconds: float) -> dict[str, Any]:
    """All candidates, `at_once` on their way; stops giving out new ones when the time is over."""
    waiting, done = list(pairs(of_each)), []
    start, busy = time.monotonic(), _busy_seconds()

    async def work() -> None:
        while waiting and time.monotonic() - start < seconds:
            done.append(await evaluator.evaluate(waiting.pop(0)))

    await asyncio.gather(*(work() for _ in range(at_once)))
    took = time.monotonic() - start
    wrong = [v for v in done if v.verdict != "correct" or v.perf is None]
    marks = {
        name: [v.cost["gpu"][name] for v in done if name in v.cost.get("gpu", {})] for name in _marks(done)
    }
    stages = ("interpreter", "compile", "gpu")
    return {
        "candidates": len(done),
        "seconds": round(took, 1),
        "a_minute": round(60 * len(done) / took, 1),
        "busy_cores": round((_busy_seconds() - busy) / took, 1),
        "new_judges": sum(bool(v.cost.get("gpu", {}).get("new_judge")) for v in done),
        "not_correct_and_timed": [f"{v.id}: {v.status} {v.error[:200]}" for v in wrong],
        "median_s": {s: _median([v.cost["stages"].get(s) for v in done]) for s in stages},
        "median_gpu_s": {name: _median(values) for name, values in marks.items()},
        "speedups": {
            task: _median([v.perf.speedup for v in done if v.perf and v.id.startswith(task)])
            for task in ("add", "softmax", "layer_norm", "matmul")
        },
    }


def _busy_seconds() -> float:
    """Seconds that this machine's processors worked, all together."""
    user, nice, system, _, _, irq, soft, *_ = Path("/proc/stat").read_text().split("\n")[0].split()[1:]
    return sum(int(ticks) for ticks in (user, nice, system, irq, soft)) / os.sysconf("SC_CLK_TCK")


def _marks(done: list[Verdict]) -> list[str]:
    return list(dict.fromkeys(name for v in done for name in v.cost.get("gpu", {})))


def _median(values: list[Any]) -> float | None:
    known = [value for value in values if value is not None]
    return round(statistics.median(known), 4) if known else None


def kernelbench_on(candidates: Iterable[Pair], folder: Path, scratch: Path) -> dict[str, Any]:
    """KernelBench's evaluator, one fresh process a candidate, one at a time."""
    times, results = [], []
    for pair in candidates:
        reference, candidate = scratch / "reference.py", scratch / "candidate.py"
        reference.write_text(pair.reference)
        candidate.write_text(pair.candidate)
        start = time.monotonic()
        line = [sys.executable, "-c", _THEIRS, str(folder), str(reference), str(candidate)]
        try:
            ran = subprocess.run(line, capture_output=True, text=True, timeout=_THEIRS_S)
            told = (x for x in ran.stdout.splitlines() if x.startswith("RESULT"))
            results.append(next(told, ran.stderr[-500:]))
        except subprocess.TimeoutExpired:
            results.append(f"no result in {_THEIRS_S} s")
        times.append(time.monotonic() - start)  # all of them, as on our side: who is refused early, too
    return {
        "seconds": [round(t, 1) for t in times],
        "a_minute": round(60 / statistics.fmean(times), 1),
        "without_result": sum(not result.startswith("RESULT") for result in results),
        "results": results,
    }


async def same_against_itself(
    evaluator: Evaluator, runs: int, at_once: int, seconds: float
) -> dict[str, Any]:
    """A kernel against itself, and against itself with a twentieth more work, each `runs` times.

    The reference launches a kernel itself, which an interpreter would take long for: they go to the GPU at once.
    """
    options = dataclasses.replace(evaluator.options, baselines=(), targets=())
    reference, same, slow = SOFTMAX_AS_REFERENCE
    waiting = [
        Pair(name, reference, code) for _ in range(runs) for name, code in (("same", same), ("slow", slow))
    ]
    start, done = time.monotonic(), []

    async def work() -> None:
        while waiting and time.monotonic() - start < seconds:
            one = Evaluation(waiting.pop(0), options)
            if not one.extract_code() or one.static():
                raise RuntimeError(f"{one.pair.id}: {one.verdict.status} {one.verdict.error}")
            await evaluator._gpu_judges[0].judge(one, timed=True)
            done.append(one.verdict)

    await asyncio.gather(*(work() for _ in range(at_once)))
    failed = [v for v in done if v.perf is None]
    if failed:
        return {"error": f"{len(failed)} of {len(done)}: {failed[0].status} {failed[0].error[:500]}"}
    ratios, slowed = (
        [[v.perf.speedup_lo, v.perf.speedup, v.perf.speedup_hi] for v in done if v.perf and v.id == name]
        for name in ("same", "slow")
    )
    return {
        "runs": min(len(ratios), len(slowed)),
        "regime": done[0].perf.regime if done[0].perf else None,
        "seconds": round(time.monotonic() - start, 1),
        "interval_holds_1": sum(low <= 1.0 <= high for low, _, high in ratios),
        "slow_down_found": sum(high < 1.0 for _, _, high in slowed),
        "ratio_median": _median([r[1] for r in ratios]),
        "half_width_median": _median([(r[2] - r[0]) / 2 for r in ratios]),
        "slowed_median": _median([r[1] for r in slowed]),
        "times": _median_times([v.perf for v in done if v.perf and v.id == "same"]),
        "odd": [dataclasses.asdict(v.perf) for v in done if v.perf and abs(v.perf.speedup - 1) > _ODD],
        "ratios": ratios,
        "slowed": slowed,
    }


def _median_times(perfs: list[Perf]) -> dict[str, list[float | None]]:
    """Microseconds in each regime: the candidate's and the reference's."""
    return {
        "latency": [_median([p.latency_us for p in perfs]), _median([p.baselines_latency.get("eager") for p in perfs])],
        "device": [_median([p.device_us for p in perfs]), _median([p.baselines_device.get("eager") for p in perfs])],
    }  # fmt: skip


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--of-each", type=int, default=40)
    parser.add_argument("--at-once", type=int, default=24, help="candidates on their way")
    parser.add_argument("--per-gpu", type=int, default=8, help="of which on the GPU")
    parser.add_argument("--workers", type=int, default=8, help="and in the interpreter")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--aa", type=int, default=60)
    parser.add_argument("--aa-seconds", type=float, default=200)
    parser.add_argument("--same-only", action="store_true", help="write no more than what --aa measures")
    parser.add_argument("--kernelbench", type=Path)
    parser.add_argument("--out", type=Path, default=Path("bench/results"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {"date": datetime.date.today().isoformat(), "versions": environment()}
    options = Options(device="cuda", targets=("sm_90",))
    with Evaluator(options, workers=given.workers, per_gpu=given.per_gpu) as evaluator:
        start = time.monotonic()
        first = await evaluator.evaluate(next(iter(pairs(1))))
        print(
            "first",
            first.status,
            first.error[:500],
            first.perf,
            round(time.monotonic() - start, 1),
            flush=True,
        )
        found["device"] = first.task.get("gpu")
        if first.perf is None:
            return 1
        if given.aa:
            found["same"] = await same_against_itself(evaluator, given.aa, given.per_gpu, given.aa_seconds)
            print(
                "same", {k: v for k, v in found["same"].items() if k not in ("ratios", "slowed")}, flush=True
            )
        if given.same_only:
            (given.out / "evaluator_gpu_same.json").write_text(json.dumps(found, indent=1) + "\n")
            return _told(unmet_same(found["same"]))
        found["ours"] = await throughput(evaluator, given.of_each, given.at_once, given.seconds)
        print("ours", json.dumps(found["ours"], indent=1), flush=True)
    _save(found, given.out)
    if given.kernelbench:
        found["kernelbench"] = theirs = kernelbench_on(pairs(3), given.kernelbench, given.out)
        print("kernelbench", theirs, flush=True)
        found["times_as_many"] = round(found["ours"]["a_minute"] / theirs["a_minute"], 1)
        _save(found, given.out)
    return _told(unmet(found) + (unmet_same(found["same"]) if given.aa else []))


def _save(found: dict[str, Any], folder: Path) -> None:
    (folder / "evaluator_gpu.json").write_text(json.dumps(found, indent=1) + "\n")


def _told(lines: list[str]) -> int:
    for line in lines:
        print(f"NOT MET: {line}")
    return 1 if lines else 0


def unmet(found: dict[str, Any]) -> list[str]:
    """Which bounds on speed the figures miss."""
    lines, ours = [], found["ours"]
    if ours["a_minute"] < 150:
        lines.append(f"150 candidates a minute: {ours['a_minute']}")
    if ours["not_correct_and_timed"]:
        lines.append(f"{len(ours['not_correct_and_timed'])} honest candidates are not correct and timed")
    if "times_as_many" in found and found["times_as_many"] < 10:
        lines.append(f"10 times KernelBench's evaluator: {found['times_as_many']}")
    return lines


def unmet_same(same: dict[str, Any]) -> list[str]:
    """Which bounds the times of a kernel against itself miss."""
    lines = []
    if same.get("runs", 0) < 60:
        lines.append(f"60 runs of a kernel against itself: {same.get('runs', 0)}")
    if same.get("runs") and same["interval_holds_1"] < 0.95 * same["runs"]:
        lines.append(f"the interval holds 1.00 in 95%: {same['interval_holds_1']} of {same['runs']}")
    if same.get("runs") and same["slow_down_found"] < 0.9 * same["runs"]:
        lines.append(f"a slow-down of 5% is found in 90%: {same['slow_down_found']} of {same['runs']}")
    far = [
        ratio for _, ratio, _ in (*same.get("ratios", ()), *same.get("slowed", ())) if abs(ratio - 1) > _ODD
    ]
    if far:
        lines.append(f"no ratio is further than {_ODD} from 1: {far}")
    return lines


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
