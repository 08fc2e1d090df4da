"""A batch with 5 % crashers, hangers, bombs and attackers among honest kernels.

Must hold: every row has a verdict, every honest kernel a correct one and no attacker; no attack makes trouble of ours
(INFRA_ERROR); no process and no file is left; the main process and its servers do not grow; the wall time is at most 1.5
times that of the honest ones and the time-outs. `--n 200` is a quick look, which is not saved.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil  # type: ignore[import-untyped]
from common import save
from hostile_candidates import HOSTILE

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.evaluate.corpus import case, cases

N, SHARE, TIMEOUT = 2_000, 0.05, 20.0
SAVED_FROM = 1_000
HONEST_ALONE = 400
"""So many honest rows are enough to know how long they take."""
SLACK = 25.0
"""What a server adds to a candidate's own time-out, and a busy machine to that."""
GROWTH_MB = 64
FACTOR = 1.5
_SUBREAPER = 36


class Ran(NamedTuple):
    rows: list[dict[str, Any]]
    seconds: float
    """From the first verdict's start: without starting the servers."""
    growth_mb: dict[str, float]
    orphans: list[str]
    left: list[str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=N)
    parser.add_argument("--share", type=float, default=SHARE, help="of hostile candidates")
    parser.add_argument("--timeout", type=float, default=TIMEOUT)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--no-clock", action="store_true", help="for a machine that has other work: time tells nothing"
    )
    options = parser.parse_args()
    # Whatever a run leaves behind becomes our child, so that it can be found.
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    hostile = round(options.n * options.share)
    honest = list(_honest(options.n - hostile))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        alone = _run(folder, "honest", honest[:HONEST_ALONE], options)
        mixed = honest + list(_hostile(hostile, options.seed))
        random.Random(options.seed).shuffle(mixed)
        everything = _run(folder, "mixed", mixed, options)
    result, broken = _judge(options, alone, everything, len(honest), mixed)
    if options.n >= SAVED_FROM:
        save("evaluator_robustness", result)
    else:
        print(json.dumps(result, indent=2))
    for line in broken:
        print(f"NOT MET: {line}")
    sys.exit(bool(broken))


def _honest(number: int) -> Iterator[dict[str, Any]]:
    """Correct kernels of the corpus, each with a comment of its own: the same content would be judged once."""
    found = [one for one in cases() if one.labels == {"correct"} and one.tier == "interpreter"]
    for n in range(number):
        one = found[n % len(found)]
        code = f"{one.code}\n# {n}\n"
        yield {
            "id": f"honest:{one.name}:{n}",
            "reference": one.reference,
            "candidate": code,
            "entry_point": one.entry_point,
        }


def _hostile(number: int, seed: int) -> Iterator[dict[str, Any]]:
    swish = case("X_ok_swish")
    names = sorted(HOSTILE)
    random.Random(seed).shuffle(names)
    for n in range(number):
        name = names[n % len(names)]
        code = f"{HOSTILE[name]}\n# {n}\n"
        yield {
            "id": f"{name}:{n}",
            "reference": swish.reference,
            "candidate": code,
            "entry_point": swish.entry_point,
        }


def _run(folder: Path, name: str, pairs: list[dict[str, Any]], options: argparse.Namespace) -> Ran:
    source, output, scratch = (
        folder / f"{name}.jsonl",
        folder / f"{name}.verdicts.jsonl",
        folder / f"tmp-{name}",
    )
    source.write_text("".join(json.dumps(pair) + "\n" for pair in pairs), encoding="utf-8")
    scratch.mkdir()
    line = [sys.executable, "-m", "kernelmill", "evaluate", str(source), "-o", str(output), "--device", "cpu"]
    line += ["--workers", str(options.workers), "--timeout", str(options.timeout)]
    process = subprocess.Popen(line, env={**os.environ, "TMPDIR": str(scratch)}, stdout=subprocess.DEVNULL)
    memory = _Memory(process.pid)
    journal = output.with_name(f"{output.name}.journal.jsonl")
    began = ended = 0.0
    while process.poll() is None:
        done = journal.read_bytes().count(b"\n") if journal.exists() else 0
        memory.look(done, len(pairs))
        if done and not began:
            began = time.monotonic()
        ended = time.monotonic()
        time.sleep(1)
    if process.returncode:
        sys.exit(f"NOT MET: the batch ended with status {process.returncode}")
    rows = [json.loads(text) for text in output.read_text(encoding="utf-8").splitlines()]
    return Ran(
        rows, ended - began, memory.growth(), _orphans(), sorted(path.name for path in scratch.iterdir())
    )


class _Memory:
    """What the main process and its servers hold, once a tenth is done and at the end."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._first: dict[str, float] = {}
        self._last: dict[str, float] = {}

    def look(self, done: int, total: int) -> None:
        if done < math.ceil(total / 10):
            return
        try:
            everybody = [self._process, *self._process.children()]
            for place, process in enumerate(everybody):
                name = "main" if place == 0 else f"server {place}"
                self._last[name] = process.memory_info().rss / 2**20
        except psutil.Error:
            return  # it is ending
        self._first = {**self._last, **self._first}

    def growth(self) -> dict[str, float]:
        return {name: round(self._last[name] - first, 1) for name, first in self._first.items()}


def _orphans() -> list[str]:
    """Processes that outlived the command, after a moment to end."""
    end = time.monotonic() + 5
    while True:
        left = [child for child in psutil.Process().children(recursive=True) if _lives(child)]
        if not left or time.monotonic() > end:
            return [f"{child.pid} {child.name()}" for child in left]
        time.sleep(0.2)


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _judge(
    options: argparse.Namespace, alone: Ran, everything: Ran, honest: int, mixed: list[dict[str, Any]]
) -> tuple[dict[str, Any], list[str]]:
    """What was found, and what does not hold."""
    by_id = {row["id"]: row for row in everything.rows}
    attackers = {name: row for name, row in by_id.items() if not name.startswith("honest:")}
    honest_rows = {name: row for name, row in by_id.items() if name.startswith("honest:")}
    wronged = {
        name: f"{row['status']}: {row['error'][:200]}"
        for name, row in honest_rows.items()
        if row["verdict"] != "correct"
    }
    trouble = {name: row["error"][:200] for name, row in by_id.items() if row["status"] == "INFRA_ERROR"}
    fooled = [name for name, row in attackers.items() if row["verdict"] == "correct" and not _harmless(name)]
    late = {
        name: row["cost"]["wall_s"]
        for name, row in attackers.items()
        if row["cost"]["wall_s"] > options.timeout + SLACK
    }
    waits = [row["cost"]["wall_s"] for row in attackers.values() if row["status"] == "TIMEOUT"]
    honest_seconds = alone.seconds * honest / max(len(alone.rows), 1)
    allowed = FACTOR * honest_seconds + sum(waits) / options.workers
    result = {
        "candidates": len(mixed),
        "hostile": len(attackers),
        "behaviours": len({_kernel(name) for name in attackers}),
        "workers": options.workers,
        "timeout_s": options.timeout,
        "verdicts": len(everything.rows),
        "hostile_by_status": dict(Counter(row["status"] for row in attackers.values()).most_common()),
        "honest_by_status": dict(Counter(row["status"] for row in honest_rows.values()).most_common()),
        "honest_that_are_not_correct": wronged,
        "infra_errors": trouble,
        "orphans": alone.orphans + everything.orphans,
        "files_left": alone.left + everything.left,
        "growth_mb": everything.growth_mb,
        "honest_alone": {"rows": len(alone.rows), "seconds": round(alone.seconds, 1)},
        "seconds": round(everything.seconds, 1),
        "seconds_allowed": round(allowed, 1),
        "candidates_a_minute": round(len(mixed) / everything.seconds * 60, 1),
    }
    checks = {
        "a verdict for every row, in order": [row["id"] for row in everything.rows]
        == [p["id"] for p in mixed],
        f"no hostile candidate is correct: {fooled}": not fooled,
        f"every honest kernel is correct: {wronged}": not wronged,
        f"no INFRA_ERROR: {trouble}": not trouble,
        f"no process is left: {result['orphans']}": not result["orphans"],
        f"no file is left: {result['files_left']}": not result["files_left"],
        f"no candidate takes more than {options.timeout + SLACK:.0f} s: {late}": not late,
        f"memory grows by at most {GROWTH_MB} MB: {everything.growth_mb}": all(
            grown <= GROWTH_MB for grown in everything.growth_mb.values()
        ),
        f"{everything.seconds:.0f} s, at most {allowed:.0f}": everything.seconds <= allowed
        or options.no_clock,
    }
    return result, [what for what, holds in checks.items() if not holds]


def _kernel(name: str) -> str:
    return name.rpartition(":")[0]


def _harmless(name: str) -> bool:
    """What the sandbox refuses without harm may leave a kernel that is right: that is no deceit."""
    return _kernel(name) in ("attack:lowers_limits", "attack:reads_everywhere", "text:long_line")


if __name__ == "__main__":
    main()
