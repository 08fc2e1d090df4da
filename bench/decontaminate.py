"""What `kernelmill decontaminate` finds and what it costs, beside the usual way: any 13 words in a row that both texts have.

    python bench/decontaminate.py path/to/KernelBench

1. Every problem of the benchmark in each disguise of `kernelmill.testing.disguises`: how many are found again.
2. Problems of level 1 against those of level 2, which are other problems: how many of level 2 are marked.
3. 100,000 rows of 8 kB with 18,162 modules among them: seconds and memory of the command.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import measured, save

from kernelmill.problems.similarity.overlap import FingerprintIndex, fingerprint
from kernelmill.store import open_source
from kernelmill.testing.disguises import DISGUISES
from kernelmill.testing.example_rows import evals_row

ROWS, MODULES, ROW_BYTES = 100_000, 18_162, 8_000
SHARE = 0.8
Finder = Callable[[str], set[int]]


def codes_of(source: str) -> list[str]:
    rows = (json.loads(row.raw) for row in open_source(source).rows())
    return [row["python_code"] if "python_code" in row else row["info"]["python_code"] for row in rows]


def ours(codes: list[str]) -> Finder:
    problems = FingerprintIndex(SHARE)
    for code in codes:
        problems.add(fingerprint(code))
    problems.finish()
    return lambda code: {match.problem for match in problems.matches(fingerprint(code))}


def usual(codes: list[str]) -> Finder:
    def runs(code: str) -> set[tuple[str, ...]]:
        words = re.findall(r"\w+", code.lower())
        return {tuple(words[at : at + 13]) for at in range(len(words) - 12)}

    known = [runs(code) for code in codes]

    def find(code: str) -> set[int]:
        held = runs(code)
        return {number for number, theirs in enumerate(known) if held & theirs}

    return find


def found_again(
    levels: dict[str, list[str]], way: Callable[[list[str]], Finder]
) -> dict[str, dict[str, int]]:
    table: dict[str, dict[str, int]] = {}
    for level, codes in levels.items():
        find = way(codes)
        for name, disguise in DISGUISES.items():
            count = sum(number in find(disguise(code)) for number, code in enumerate(codes))
            table.setdefault(name, {})[level] = count
    return table


def command_cost(folder: str) -> dict[str, Any]:
    modules = [*codes_of("bundled:problems"), *codes_of("bundled:samples/evals.jsonl")]
    with tempfile.TemporaryDirectory() as place:
        source, output = Path(place, "rows.jsonl"), Path(place, "out.jsonl")
        with source.open("w", encoding="utf-8") as file:
            for n in range(ROWS):
                number = n % MODULES
                code = f"{modules[number % len(modules)]}\n\nNUMBER = {number}\n"
                row = evals_row(n, answer_bytes=ROW_BYTES - len(code) - 600)
                row["info"]["python_code"] = code
                file.write(json.dumps(row) + "\n")
        line = [
            sys.executable,
            "-m",
            "kernelmill",
            "decontaminate",
            str(source),
            "-o",
            str(output),
            "--against",
            folder,
        ]
        done = measured(line)
        return {
            "rows": ROWS,
            "modules": MODULES,
            "source_mb": round(source.stat().st_size / 1e6),
            "seconds": round(done.seconds, 1),
            "peak_mb": round(done.peak_mb),
        }


def main(folder: str) -> None:
    levels = {level: codes_of(f"{folder}/{level}") for level in ("level1", "level2", "level3", "level4")}
    ways = {"kernelmill": ours, "13 words": usual}
    save(
        "decontaminate",
        {
            "problems": {level: len(codes) for level, codes in levels.items()},
            "found_again": {name: found_again(levels, way) for name, way in ways.items()},
            "level2_marked_by_level1": {
                name: sum(map(bool, map(way(levels["level1"]), levels["level2"])))
                for name, way in ways.items()
            },
            "command": command_cost(folder),
        },
    )


if __name__ == "__main__":
    main(sys.argv[1])
