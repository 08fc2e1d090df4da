"""`kernelmill publish --to folder:` beside the usual way: `json.loads`, `datasets.Dataset.from_list`, `to_parquet`.

Both read the same 100,000 rows of 8 kB and run in turns, five times each; the median of each counts. `--split none`, so that both
do the same; with the default split by groups once more. Must hold: 3 times as fast, under 400 MB, linear growth. Then small rows, 10,000 to 1,000,000, for how the cost grows.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from common import Measured, measured, save

from kernelmill.testing.example_rows import evals_row

ROWS, TURNS = 100_000, 5
USUAL = """
import json, sys, time
started = time.monotonic()
rows = [json.loads(line) for line in open(sys.argv[1], "rb")]
loaded = time.monotonic()
import datasets
datasets.disable_progress_bars()
imported = time.monotonic()
datasets.Dataset.from_list(rows).to_parquet(sys.argv[2])
print(json.dumps({"load": loaded - started, "convert": time.monotonic() - imported}))
"""


def write_rows(path: Path) -> None:
    """Evals rows of about 8 kB, each with a module that is like no other and text that does not repeat."""
    chance = random.Random(0)
    words = [
        "".join(chance.choices("abcdefghijklmnopqrstuvwxyz_", k=chance.randint(2, 10))) for _ in range(5000)
    ]
    with path.open("w", encoding="utf-8") as file:
        for n in range(ROWS):
            row = evals_row(n, round(chance.random() * 2, 6), difficulty="low", evaluation_raw="low")
            lines = "\n".join(
                f"        x = x.{chance.choice(words)}(x + {chance.random()})" for _ in range(20)
            )
            row["info"]["python_code"] += (
                f"\n\nclass Inner{n}(nn.Module):\n    def forward(self, x):\n{lines}\n        return x\n"
            )
            row["completion"][0]["content"] = " ".join(chance.choices(words, k=880)) + "<answer>x</answer>"
            file.write(json.dumps(row) + "\n")


def write_small(path: Path, rows: int) -> None:
    with path.open("w", encoding="utf-8") as file:
        for n in range(rows):
            file.write(
                json.dumps(
                    {"prompt": f"Write M{n}.", "module_name": f"M{n}", "python_code": f"x = {n}", "uuid": n}
                )
                + "\n"
            )


def publish(source: Path, folder: Path, *more: str) -> Measured:
    line = [sys.executable, "-m", "kernelmill", "publish", str(source), "--to", f"folder:{folder}", *more]
    return measured(line)


def figures(runs: list[Measured]) -> dict[str, Any]:
    middle = sorted(runs, key=lambda run: run.seconds)[len(runs) // 2]
    return {
        "seconds": round(middle.seconds, 2),
        "all_seconds": [round(run.seconds, 2) for run in runs],
        "cpu_seconds": round(middle.cpu, 2),
        "peak_mb": round(max(run.peak_mb for run in runs)),
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        write_rows(top / "rows.jsonl")
        ours, usual = [], []
        for turn in range(TURNS):
            ours.append(publish(top / "rows.jsonl", top / f"out{turn}", "--split", "none"))
            usual.append(
                measured([sys.executable, "-c", USUAL, str(top / "rows.jsonl"), str(top / "usual.parquet")])
            )
        parts = [json.loads(run.stdout) for run in usual]
        mine, theirs = figures(ours), figures(usual)
        convert = statistics.median(part["convert"] for part in parts)
        result: dict[str, Any] = {
            "rows": ROWS,
            "row_bytes": round((top / "rows.jsonl").stat().st_size / ROWS),
            "publish": {**mine, "written_mb": round(size(top / "out0") / 1e6)},
            "usual": {**theirs, "from_list_and_to_parquet_seconds": round(convert, 2), "written_mb": round(size(top / "usual.parquet") / 1e6)},
            "times_as_fast": round(theirs["seconds"] / mine["seconds"], 2),
            "times_as_fast_as_from_list_and_to_parquet_alone": round(convert / mine["seconds"], 2),
            "with_groups": figures([publish(top / "rows.jsonl", top / "groups")]),
            "small_rows": {},
        }  # fmt: skip
        for rows in (10_000, 100_000, 1_000_000):
            write_small(top / "small.jsonl", rows)
            result["small_rows"][rows] = figures([publish(top / "small.jsonl", top / f"small{rows}")])
    save("publish", {"pyarrow": version("pyarrow"), "datasets": version("datasets"), **result})
    if missed := list(_missed(result)):
        sys.exit(f"NOT MET: {'; '.join(missed)}")


def _missed(result: dict[str, Any]) -> Iterator[str]:
    if result["times_as_fast"] < 3:
        yield f"{result['times_as_fast']} times as fast as the usual way, not 3"
    if (alone := result["times_as_fast_as_from_list_and_to_parquet_alone"]) < 3:
        yield f"{alone} times as fast as from_list and to_parquet alone, not 3"
    for name in ("publish", "with_groups"):
        if result[name]["peak_mb"] >= 400:
            yield f"{name} takes {result[name]['peak_mb']} MB"
    small = result["small_rows"]
    if small[1_000_000]["seconds"] > 12 * small[100_000]["seconds"]:
        yield "cost does not grow linearly"


def size(path: Path) -> int:
    return sum(
        file.stat().st_size for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file()
    )


if __name__ == "__main__":
    main()
