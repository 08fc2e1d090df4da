"""The same verdicts on an idle machine and on a busy one, without a GPU.

    python bench/busy_machine.py PAIRS.jsonl [--pairs 100] [--loops 8] [--workers 2] [--parts 1]

Judges the pairs twice, with the same seed: once with nothing beside them, once with busy loops. PAIRS.jsonl has kernels from
elsewhere (id, reference, candidate); none are shipped here. On a machine with more processors, --parts shares the pairs out: each
part has two processors of its own, and as many busy loops on these as a machine of two would have. Writes busy_machine.json into --out.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from kernelmill.evaluate.batch import PairBatch, run
from kernelmill.evaluate.options import Options, environment


def _spin() -> None:
    os.setsid()  # the kernel shares processors among sessions first
    while True:
        pass


@contextlib.contextmanager
def busy(loops: int) -> Iterator[None]:
    processes = [multiprocessing.get_context("fork").Process(target=_spin, daemon=True) for _ in range(loops)]
    try:
        for process in processes:
            process.start()
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


Told = dict[str, list[str]]
"""By the pair's id: verdict, status, error."""


def judged(source: Path, loops: int, workers: int) -> Told:
    output = source.with_suffix(".verdicts.jsonl")
    with busy(loops):
        run(PairBatch(source, output, Options(device="cpu", seed=20261116), workers, force=True))
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    return {row["id"]: [row["verdict"], row["status"], row["error"][:200]] for row in rows}


def judged_in_parts(rows: list[str], parts: int, loops: int, workers: int) -> tuple[float, Told]:
    """Each part in a process of its own, on the processors that are its alone."""
    processors = sorted(os.sched_getaffinity(0))
    if parts > 1 and len(processors) < 2 * parts:
        raise SystemExit(f"{parts} parts need {2 * parts} processors; here are {len(processors)}")
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        running = []
        for part in range(parts):
            source = Path(folder) / f"{part}.jsonl"
            source.write_text("".join(f"{row}\n" for row in rows[part::parts]))
            process = multiprocessing.get_context("fork").Process(
                target=_part,
                args=(
                    source,
                    processors[2 * part : 2 * part + 2] if parts > 1 else processors,
                    loops,
                    workers,
                ),
            )
            process.start()
            running.append((process, source))
        told: Told = {}
        for process, source in running:
            process.join()
            told |= json.loads(source.with_suffix(".told.json").read_text())
    return time.monotonic() - start, told


def _part(source: Path, processors: list[int], loops: int, workers: int) -> None:
    os.sched_setaffinity(0, processors)  # the loops and the judge's processes inherit it
    source.with_suffix(".told.json").write_text(json.dumps(judged(source, loops, workers)))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path)
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--loops", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("bench/results"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    rows = given.source.read_text().splitlines()
    random.Random(3).shuffle(rows)
    rows = rows[: given.pairs]
    idle_s, idle = judged_in_parts(rows, given.parts, 0, given.workers)
    busy_s, loaded = judged_in_parts(rows, given.parts, given.loops, given.workers)
    changed = {
        name: {"idle": told, "busy": loaded[name]}
        for name, told in idle.items()
        if told[:2] != loaded[name][:2]
    }
    found: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        "versions": environment(),
        "pairs": len(idle),
        "parts": given.parts,  # what follows is of each
        "processors": 2 if given.parts > 1 else os.cpu_count(),
        "loops": given.loops,
        "seconds": {"idle": round(idle_s, 1), "busy": round(busy_s, 1)},
        "verdicts": dict(Counter(" ".join(told[:2]) for told in idle.values())),
        "changed": changed,
    }
    (given.out / "busy_machine.json").write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))
    for name, both in changed.items():
        print(f"NOT MET: {name}: {both}")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
