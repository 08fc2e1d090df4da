"""What the small things take that are done thousands of times, or before anything else: python bench/small_costs.py

On the bundled rows, each thing by its best round: whoever else is at work only makes it longer. Must hold on an idle
machine, at the median row: the help answers in 0.3 s; reading a module takes 2 ms, looking at a candidate 50 ms, checking
a specification 20 ms, adding columns to a row 2 ms, tracing a module in a warm sandbox 0.5 s.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from common import SAMPLES, save

from kernelmill.base.rows import with_columns
from kernelmill.curate.specs.checks import check_spec
from kernelmill.curate.specs.writer import write_spec
from kernelmill.evaluate.static.examine import examine
from kernelmill.problems.facts import TRACE_WORKER, module_facts
from kernelmill.problems.source import read_source
from kernelmill.sandbox import Sandbox

MOST_S = {
    "help": 0.3,
    "read a module": 0.002,
    "look at a candidate": 0.05,
    "check a specification": 0.02,
    "add columns to a row": 0.002,
    "trace a module": 0.5,
}
ROUNDS = 10


def main() -> int:
    lines = SAMPLES.read_bytes().splitlines()
    found: dict[str, list[float]] = {name: [] for name in MOST_S}
    help_line = [sys.executable, "-m", "kernelmill", "--help"]
    found["help"].append(best(lambda: subprocess.run(help_line, check=True, capture_output=True)))
    with Sandbox(TRACE_WORKER) as sandbox, asyncio.Runner() as loop:
        for line in lines:
            row = json.loads(line)
            for name, work in works(row, line, sandbox, loop).items():
                found[name].append(best(work))
    times = {name: statistics.median(each) for name, each in found.items()}
    holds = {name: times[name] < most for name, most in MOST_S.items()}
    save(
        "small_costs",
        {
            "rows": len(lines),
            "milliseconds": {name: round(1e3 * s, 3) for name, s in times.items()},
            "holds": holds,
        },
    )
    return 0 if all(holds.values()) else 1


def works(
    row: dict[str, Any], line: bytes, sandbox: Sandbox, loop: asyncio.Runner
) -> dict[str, Callable[[], object]]:
    """Each of the small things, for one row."""
    name, code = row["info"]["module_name"], row["info"]["python_code"]
    facts = loop.run(module_facts(code, name, sandbox))
    assert facts.trace is not None
    text = write_spec(f"{name}New", facts.source, facts.trace)
    return {
        "read a module": lambda: read_source(code, name),
        "look at a candidate": lambda: examine(row["answer"], name),
        "check a specification": lambda: check_spec(text, f"{name}New", facts.source, facts.trace),
        "add columns to a row": lambda: with_columns(line, {"difficulty": "low", "rater": "x"}),
        "trace a module": lambda: loop.run(module_facts(code, name, sandbox)),
    }


def best(work: Callable[[], object]) -> float:
    """Seconds."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


if __name__ == "__main__":
    sys.exit(main())
