"""Memory is flat in the number of rows, whatever the source is. `bench/rerun_and_memory.py` does it at full size."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kernelmill.testing.fake_endpoint import FakeEndpoint
from tests.conftest import command, evals_row, write_rows

ROWS, LIMIT_MB = 6000, 300


def peak_mb(folder: Path, *arguments: object) -> float:
    """The high-water mark of the process, polled: what `wait4` tells includes the memory of whoever started it."""
    process = subprocess.Popen(
        command(*arguments), cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    peak = 0
    while process.poll() is None:
        status = Path(f"/proc/{process.pid}/status").read_text()
        if found := re.search(r"VmHWM:\s*(\d+) kB", status):
            peak = max(peak, int(found[1]))
        time.sleep(0.02)
    assert process.returncode == 0
    return peak / 1024


@pytest.mark.heavy
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_180_mb_of_rows_take_no_more_memory_than_a_few(tmp_path: Path, kind: str) -> None:
    filler = "all work and no play. " * 1250
    rows = [evals_row(n, answer=filler) for n in range(ROWS)]
    source = tmp_path / f"rows.{kind}"
    if kind == "jsonl":
        write_rows(source, rows)
    else:
        # One row group of 180 MB: the worst case for a reader.
        pq.write_table(pa.Table.from_pylist(rows), source, row_group_size=ROWS, use_dictionary=False)
    with FakeEndpoint(remember=False) as endpoint:
        line = ("rate", source, "-o", "out.jsonl", "--base-url", endpoint.base_url, "--model", "fake")
        assert peak_mb(tmp_path, *line) < LIMIT_MB
        assert endpoint.asked.total() == ROWS
    assert (tmp_path / "out.jsonl").stat().st_size > 150e6
