"""`kernelmill decompose` over KernelBench: python bench/decompose.py PATH/TO/KernelBench [--levels 1,2,3] [--keep OUT]

The whole command, with its proofs. Must hold at levels 1 to 3: all 250 proven with full coverage, in under 40 minutes on 2 cores and
12 GB, the median under 5 s at levels 1 and 2; and so at level 4 (`--levels 4`), all 20, where transformers is installed.

With `--beside SRC`, the source folder of another version, both versions decompose and prove a sample (`--every` so many problems) in turn,
and the processor time of both is compared: a stricter proof must not cost more.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
from common import save

_LINE = re.compile(r"^\d+/\d+  (level\d)/(\S+)  .* ([\d.]+) s(?:  .*)?$")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kernelbench", type=Path)
    parser.add_argument("--levels", default="1,2,3")
    parser.add_argument(
        "--keep", type=Path, metavar="OUT", help="leave the trees there (for decompose_files.py)"
    )
    parser.add_argument("--beside", type=Path, metavar="SRC", help="another version's folder `src`")
    parser.add_argument("--every", type=int, default=10, help="of how many problems one is in the sample")
    given = parser.parse_args()
    base = next(path for path in (given.kernelbench / "KernelBench", given.kernelbench) if path.is_dir())
    folders = [base / f"level{level}" for level in given.levels.split(",")]
    if given.beside:
        found = beside(folders, given.beside.resolve(), given.every)
        save("decompose_beside", found)
        return 0 if found["ratio"] <= 1 else 1
    with tempfile.TemporaryDirectory() as temporary:
        found = decomposed(folders, given.keep or Path(temporary))
    part = "" if given.levels == "1,2,3" else "_level" + given.levels.replace(",", "")
    save(f"decompose{part}", found | {"holds": holds(found)})
    return 0 if all(holds(found).values()) else 1


def beside(folders: list[Path], other: Path, every: int) -> dict[str, Any]:
    """Processor seconds of this version and of another, on the same problems in turn."""
    own = Path(__file__).resolve().parents[1] / "src"
    spent = {"this": [0.0] * len(folders), "other": [0.0] * len(folders)}
    proven = {"this": 0, "other": 0}
    sample = [sorted(folder.glob("*.py"))[::every] for folder in folders]
    for level, problems in enumerate(sample):
        for number, problem in enumerate(problems):
            sides = [("this", own), ("other", other)]
            for side, source in sides if number % 2 else reversed(sides):
                with tempfile.TemporaryDirectory() as output:
                    before = os.times()
                    done = subprocess.run(
                        [sys.executable, "-m", "kernelmill", "decompose", str(problem), "-o", output, "--workers", "1"],
                        env={**os.environ, "PYTHONPATH": str(source)}, cwd=output, capture_output=True,
                    )  # fmt: skip
                    after = os.times()
                spent[side][level] += (
                    after.children_user
                    - before.children_user
                    + after.children_system
                    - before.children_system
                )
                proven[side] += done.returncode == 0
    totals = {side: round(sum(seconds), 1) for side, seconds in spent.items()}
    return {
        "problems": sum(map(len, sample)),
        "proven": proven,
        "cpu_s": totals,
        "cpu_s_by_level": {side: [round(one, 1) for one in seconds] for side, seconds in spent.items()},
        "ratio": round(totals["this"] / totals["other"], 3),
    }


def decomposed(folders: list[Path], output: Path) -> dict[str, Any]:
    start = time.monotonic()
    line = [
        sys.executable,
        "-m",
        "kernelmill",
        "decompose",
        *map(str, folders),
        "-o",
        str(output),
        "--workers",
        "2",
    ]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    memory = _Memory(process.pid)
    memory.start()
    assert process.stdout is not None
    text = process.stdout.read()
    process.wait()
    memory.stop()
    seconds = {f"{m[1]}/{m[2]}": float(m[3]) for m in map(_LINE.match, text.splitlines()) if m}
    trees = [json.loads(path.read_text()) for path in output.rglob("decomposition_tree.json")]
    coverages = [json.loads(path.read_text()) for path in output.rglob("verification/coverage_summary.json")]
    sizes = [
        json.loads((path.parent / "verification/test_results.json").read_text())
        for path in output.rglob("decomposition_tree.json")
    ]
    levels = {}
    for folder in folders:
        mine = [tree for tree in trees if tree["metadata"]["source_level"] == int(folder.name[-1])]
        times = [took for name, took in seconds.items() if name.startswith(f"{folder.name}/")]
        levels[folder.name] = {
            "problems": len(list(folder.glob("*.py"))),
            "proven": sum(tree["metadata"]["verification_status"] == "PASS" for tree in mine),
            "classified": _counted(tree["metadata"]["classification"]["level"] for tree in mine),
            "kernels": sum(tree["metadata"]["unique_kernels"] for tree in mine),
            "median_s": round(statistics.median(times), 2) if times else None,
            "longest_s": max(times, default=None),
        }
    return {
        "levels": levels,
        "not_proven": [
            tree["metadata"]["model_name"]
            for tree in trees
            if tree["metadata"]["verification_status"] != "PASS"
        ],
        "full_coverage": sum(one["status"] == "FULL_COVERAGE" for one in coverages),
        "numbers_at_full_size": sum(one["numerical_comparison"].get("reduced") is None for one in sizes),
        "wall_s": round(time.monotonic() - start),
        "peak_memory_gb": round(memory.peak / 1e9, 1),
        "exit_code": process.returncode,
    }


def holds(found: dict[str, Any]) -> dict[str, bool]:
    levels = found["levels"]
    problems = sum(level["problems"] for level in levels.values())
    return {
        "all proven": sum(level["proven"] for level in levels.values()) == problems,
        "full coverage": found["full_coverage"] == problems,
        "under 40 minutes": found["wall_s"] < 2400,
        "under 12 GB": found["peak_memory_gb"] < 12,
        "median under 5 s at levels 1 and 2": all(
            level["median_s"] < 5 for name, level in levels.items() if name in ("level1", "level2")
        ),
    }


def _counted(names: Any) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in names:
        found[name] = found.get(name, 0) + 1
    return found


class _Memory(threading.Thread):
    """The most memory that a process and those below it have had at once; what several share counts in parts."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.peak = 0
        self._process = psutil.Process(pid)
        self._end = threading.Event()

    def run(self) -> None:
        while not self._end.wait(0.5):
            total = 0
            try:
                for one in [self._process, *self._process.children(recursive=True)]:
                    with contextlib.suppress(psutil.Error):
                        total += one.memory_full_info().pss
            except psutil.Error:
                return
            self.peak = max(self.peak, total)

    def stop(self) -> None:
        self._end.set()
        self.join()


if __name__ == "__main__":
    sys.exit(main())
