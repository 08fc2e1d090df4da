"""`unique --by name` and `strip` on 100,000 rows of 8 kB, beside the plain way; and how cost grows to a million rows.

Must hold: at least 3 times as fast as `json.loads` of everything, a dict, `json.dumps`; under 400 MB; linear at 10 thousand, 100 thousand and
1 million small rows. Both sides are whole processes on the same file, in turn, three times, and the better time of each counts.
The rows are the bundled samples over and over, with modules of their own, 2.4 rows a module, as the evals of KernelBook have it.
Ours also writes every row that it drops, with the reason, hashes what it keeps, and brings all of it to the disk; the plain way does none of that.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import Measured, measured, save, write_evals, write_samples

ROWS, ROW_BYTES, MODULES, ROUNDS = 100_000, 8_000, 41_667, 3
SMALL = {"rows": (10_000, 100_000, 1_000_000), "bytes": 1_000}

UNIQUE = """
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
best = {}
for row in rows:
    name = row["info"]["module_name"]
    if name not in best or row["reward"] > best[name]["reward"]:
        best[name] = row
with open(sys.argv[2], "w") as file:
    for row in best.values():
        file.write(json.dumps(row) + "\\n")
"""
STRIP = """
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
for row in rows:
    for message in row["completion"]:
        text = message["content"]
        start = text.rindex("<answer>")
        message["content"] = text[start : text.index("</answer>", start) + 9]
with open(sys.argv[2], "w") as file:
    for row in rows:
        file.write(json.dumps(row) + "\\n")
"""
STAGES = {"unique": (UNIQUE, ["--by", "name"]), "strip": (STRIP, [])}


def main() -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        source = folder / "rows.jsonl"
        write_samples(source, ROWS, ROW_BYTES, MODULES)
        size = source.stat().st_size
        result: dict[str, Any] = {"rows": ROWS, "source_mb": round(size / 1e6), "modules": MODULES}
        for stage, (plain, flags) in STAGES.items():
            result[stage] = _beside(folder, source, stage, plain, flags)
        result["growth"] = {stage: _growth(folder, stage, flags) for stage, (_, flags) in STAGES.items()}
    save("curate", result)
    if missed := list(_missed(result)):
        sys.exit(f"NOT MET: {'; '.join(missed)}")


def _beside(folder: Path, source: Path, stage: str, plain: str, flags: list[str]) -> dict[str, Any]:
    ours: list[Measured] = []
    theirs: list[Measured] = []
    for _ in range(ROUNDS):
        theirs.append(measured([sys.executable, "-c", plain, str(source), str(folder / "plain.jsonl")]))
        ours.append(_ours(folder, source, stage, flags))
    return {
        "seconds": [round(run.seconds, 2) for run in ours],
        "peak_mb": round(max(run.peak_mb for run in ours)),
        "plain_seconds": [round(run.seconds, 2) for run in theirs],
        "plain_peak_mb": round(max(run.peak_mb for run in theirs)),
        "times_as_fast": round(min(run.seconds for run in theirs) / min(run.seconds for run in ours), 2),
    }


def _ours(folder: Path, source: Path, stage: str, flags: list[str]) -> Measured:
    output = folder / "out"
    shutil.rmtree(output, ignore_errors=True)
    line = [sys.executable, "-m", "kernelmill", stage, str(source), "-o", str(output / "rows.jsonl")]
    return measured([*line, *flags])


def _growth(folder: Path, stage: str, flags: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for rows in SMALL["rows"]:
        source = folder / f"small-{rows}.jsonl"
        if not source.exists():
            write_evals(source, rows, code_bytes=0, row_bytes=SMALL["bytes"])
        run = _ours(folder, source, stage, flags)
        found[f"{rows}"] = {
            "seconds": round(run.seconds, 2),
            "microseconds_a_row": round(run.seconds / rows * 1e6, 1),
            "peak_mb": round(run.peak_mb),
        }
    return found


def _missed(result: dict[str, Any]) -> Any:
    for stage in STAGES:
        if result[stage]["times_as_fast"] < 3:
            yield f"{stage} is {result[stage]['times_as_fast']} times as fast, not 3"
        if result[stage]["peak_mb"] >= 400:
            yield f"{stage} takes {result[stage]['peak_mb']} MB"
        growth = result["growth"][stage]
        if growth["1000000"]["microseconds_a_row"] > 1.2 * growth["100000"]["microseconds_a_row"]:
            yield f"{stage} does not grow linearly"


if __name__ == "__main__":
    main()
