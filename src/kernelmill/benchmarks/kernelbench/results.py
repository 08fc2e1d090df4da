"""Conversion of `synthesize` rows to KernelBench's `eval_results.json`, fast_p and pass@k of a level.

fast_p is the share of all problems whose first sample is correct and more than p times as fast; fast_0 is the
share that is correct. It is computed against eager, as on KernelBench's leaderboard, and against the faster
of eager and torch.compile, as in our rewards. If nothing was timed, only fast_0 is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from kernelmill.base.rows import Named
from kernelmill.generate.synthesize.statistics import mean_pass_at

THRESHOLDS = (0.0, 1.0, 2.0)
_NUMBER = re.compile(r"\d+")


def eval_results(rows: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return each problem's samples as KernelBench's evaluator writes them, in problem order.

    Times are in milliseconds.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(_problem_id(row), []).append(_entry(row))
    for samples in found.values():
        samples.sort(key=lambda sample: int(sample["sample_id"]))
    return dict(sorted(found.items(), key=lambda pair: (not pair[0].isdigit(), int(pair[0]) if pair[0].isdigit() else 0, pair[0])))  # fmt: skip


def _problem_id(row: dict[str, Any]) -> str:
    given = row.get("problem_id", row.get("problem_problem_id"))
    if given is not None:
        return str(given)
    name = msgspec.convert(row, Named).display_name
    number = _NUMBER.match(name)
    return number[0] if number else name


def _entry(row: dict[str, Any]) -> dict[str, Any]:
    verdict = row["verdict"]
    perf = verdict.get("perf")
    targets = verdict.get("compile", {}).get("targets", {})
    correct = verdict["verdict"] == "correct"
    entry: dict[str, Any] = {
        "sample_id": row["rollout"],
        "compiled": correct or any(bool(target.get("ok")) for target in targets.values()),
        "correctness": correct,
        "metadata": {
            "problem_name": row.get("problem_name"),
            "status": verdict["status"],
            "verdict": verdict["verdict"],
            "error": verdict.get("error", "")[:2000],
            "tier": verdict["tier"],
        },
        "runtime": -1.0,
        "runtime_stats": {},
    }
    if perf is not None:
        stats = {name: perf[f"{name}_us"] for name in ("mean", "std", "min", "max")}
        known = {name: value / 1e3 for name, value in stats.items() if value is not None}
        entry["runtime"] = perf["median_us"] / 1e3
        entry["runtime_stats"] = known | {"num_trials": perf["n"], "device": perf["device"]}
        entry["ref_runtime"] = perf["baselines"]["eager"] / 1e3
        entry["metadata"] |= {
            "speedup": perf["speedup"],
            "speedup_eager": perf["baselines"]["eager"] / perf["median_us"],
        }
    return entry


def summary(results: dict[str, list[dict[str, Any]]], problems: int) -> dict[str, Any]:
    """Summarise the results. `problems` is the total: a problem without a sample counts as not solved."""
    first = [samples[0] for samples in results.values() if samples[0]["sample_id"] == 0]
    timed = any("speedup" in one["metadata"] for one in first)
    counts = [(len(samples), sum(one["correctness"] for one in samples)) for samples in results.values()]

    def fast(threshold: float, key: str) -> float | None:
        if threshold and not timed:
            return None
        fast_ones = [
            one for one in first if one["correctness"] and (one["metadata"].get(key) or 0.0) > threshold
        ]
        good = fast_ones if threshold else [one for one in first if one["correctness"]]
        return round(len(good) / problems, 6) if problems else None

    return {
        "problems": problems,
        "with_samples": len(results),
        "compiled": sum(one["compiled"] for one in first),
        "correct": sum(one["correctness"] for one in first),
        "inconclusive": sum(one["metadata"]["verdict"] == "inconclusive" for one in first),
        "fast_p": {f"{p:g}": fast(p, "speedup_eager") for p in THRESHOLDS},
        "fast_p_of_the_fastest_baseline": {f"{p:g}": fast(p, "speedup") for p in THRESHOLDS},
        "pass_at_k": mean_pass_at(counts, problems),
    }
