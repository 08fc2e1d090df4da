"""18,162 rows of 30 kB: peak memory of the first run, and the time of a rerun in which everything is journalled.

Must hold: under 400 MB in both, and a rerun that makes no call and ends within 10 s. Beside it, in the same run, the plain
way of the rerun: read everything, look the answers up in a dict, write everything.
"""

from __future__ import annotations

import json
import sys
import tempfile
import urllib.request
from pathlib import Path

from common import measured, save, server, write_evals

ROWS, ROW_BYTES = 18_162, 30_000

PLAIN = """
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
answers = {row["example_id"]: row["difficulty"] for row in map(json.loads, open(sys.argv[2]))}
for row in rows:
    row["difficulty"] = answers[row["example_id"]]
with open(sys.argv[1] + ".plain", "w") as file:
    for row in rows:
        file.write(json.dumps(row) + "\\n")
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, server(0.0) as base_url:
        source, output = Path(folder) / "evals.jsonl", Path(folder) / "out" / "rows.jsonl"
        write_evals(source, ROWS, code_bytes=6000, row_bytes=ROW_BYTES)
        line = [sys.executable, "-m", "kernelmill", "rate", str(source), "-o", str(output)]
        line += ["--base-url", base_url, "--model", "fake"]
        first = measured(line)
        calls = _calls(base_url)
        again = measured(line)
        repeated = _calls(base_url) - calls
        plain = measured([sys.executable, "-c", PLAIN, str(source), str(output)])
        manifest = json.loads(output.with_name("rows.manifest.json").read_text())
        assert manifest["rows"]["out"] == calls == ROWS
        result = {
            "rows": ROWS,
            "source_mb": round(source.stat().st_size / 1e6),
            "journal_mb": round(output.with_name("rate.journal.sqlite").stat().st_size / 1e6),
            "first_run": {"seconds": round(first.seconds, 2), "peak_mb": round(first.peak_mb)},
            "rerun": {"seconds": round(again.seconds, 2), "peak_mb": round(again.peak_mb), "calls": repeated},
            "plain_rerun": {"seconds": round(plain.seconds, 2), "peak_mb": round(plain.peak_mb)},
        }
    save("rerun_and_memory", result)
    if repeated or again.seconds > 10 or max(first.peak_mb, again.peak_mb) > 400:
        sys.exit("NOT MET: no call, at most 10 s, under 400 MB")


def _calls(base_url: str) -> int:
    with urllib.request.urlopen(base_url.removesuffix("/v1") + "/fake/stats") as reply:
        return int(json.load(reply)["calls"])


if __name__ == "__main__":
    main()
