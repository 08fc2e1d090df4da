"""How long work that costs nothing takes to end after the first signal: python bench/stopping.py [PAIRS.jsonl] [--rounds 3]

Each command is started as a user would, on the bundled problems and rows; `evaluate` on PAIRS.jsonl, kernels from elsewhere, if given.
Once it has begun to work it gets SIGINT or SIGTERM in turn. Must hold on an otherwise idle machine: every process is gone
within 2 s, the exit code is 130 and the last line says so.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
from common import save

ROOT = Path(__file__).resolve().parents[1]
MOST_S = 2.0
COMMANDS = {
    "rate": (["rate", "bundled:samples/evals.jsonl", "--rater", "static", "-o", "OUT/rated.jsonl"], 7.0),
    "specs": (["specs", "bundled:problems", "--writer", "static", "-o", "OUT/specs.jsonl"], 7.0),
    "synthesize": (
        ["synthesize", "bundled:problems", "--teacher", "inductor", "-o", "OUT/evals.jsonl"],
        30.0,
    ),
    "admit": (["admit", str(ROOT / "data/problems"), "-o", "OUT/admit.jsonl"], 10.0),
    "decompose": (["decompose", str(ROOT / "data/problems/level3"), "-o", "OUT/trees"], 20.0),
    "evaluate": (["evaluate", "PAIRS", "-o", "OUT/verdicts.jsonl"], 25.0),
}


def stopped(words: list[str], after: float, number: signal.Signals, pairs: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        line = [word.replace("OUT", folder).replace("PAIRS", str(pairs)) for word in words]
        process = subprocess.Popen(
            [sys.executable, "-m", "kernelmill", *line], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )  # fmt: skip
        time.sleep(after)
        if process.poll() is not None:
            raise SystemExit(
                f"{' '.join(words)} was done before it could be stopped: {process.stderr.read()}"
            )  # type: ignore[union-attr]
        family = [process.pid, *(one.pid for one in psutil.Process(process.pid).children(recursive=True))]
        began = time.monotonic()
        process.send_signal(number)
        _, said = process.communicate(timeout=120)
        while any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in family):
            time.sleep(0.01)
        took = time.monotonic() - began
    last = said.strip().splitlines()[-1] if said.strip() else ""
    return {"signal": number.name, "seconds": round(took, 2), "code": process.returncode, "processes": len(family), "last_line": last.replace(folder, "OUT")}  # fmt: skip


def unmet(found: dict[str, list[dict[str, Any]]]) -> list[str]:
    return [
        f"{name}: {one}"
        for name, rounds in found.items()
        for one in rounds
        if one["seconds"] > MOST_S or one["code"] != 130 or "interrupted" not in one["last_line"]
    ]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pairs", type=Path, nargs="?")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    names = [name for name in COMMANDS if name != "evaluate" or given.pairs]
    pairs = given.pairs.resolve() if given.pairs else Path()
    signals = (signal.SIGINT, signal.SIGTERM)
    found = {
        name: [stopped(*COMMANDS[name], signals[number % 2], pairs) for number in range(given.rounds)]
        for name in names
    }
    lines = unmet(found)
    save("stopping", {"commands": found, "not_met": lines})
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
