"""A batch survives candidates that crash, hang, flood and attack: bench/evaluator_robustness.py, in small."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from tests.conftest import ROOT, command, write_rows
from tests.evaluate.corpus import case


@pytest.mark.heavy
@pytest.mark.timeout(900)
def test_every_row_has_a_verdict_and_nothing_is_left_behind_whatever_the_candidates_do() -> None:
    line = [sys.executable, str(ROOT / "bench/evaluator_robustness.py"), "--n", "40", "--share", "0.6"]
    line += ["--timeout", "5", "--workers", "2", "--no-clock"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    found = json.loads(done.stdout)
    assert (found["candidates"], found["verdicts"], found["behaviours"]) == (40, 40, 24)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.heavy
def test_however_a_batch_ends_none_of_its_processes_outlives_it(number: signal.Signals) -> None:
    """Among them one that runs for ever, and will not be asked to stop."""
    one = case("X_ok_swish")
    endless = one.code + "\nwhile True:\n    try:\n        while True: pass\n    except BaseException: pass\n"
    rows = [one.code, endless, *(f"{one.code}\n# {n}" for n in range(50))]
    write_rows(
        Path("pairs.jsonl"),
        [{"reference": one.reference, "candidate": code, "entry_point": "Swish"} for code in rows],
    )
    scratch = Path("scratch").resolve()
    scratch.mkdir()
    line = command("evaluate", "pairs.jsonl", "-o", "out.jsonl", "--device", "cpu", "--workers", "2")
    process = subprocess.Popen(
        line, env={**os.environ, "TMPDIR": str(scratch)}, stderr=subprocess.PIPE, text=True
    )
    journal, end = Path("out.jsonl.journal.jsonl"), time.monotonic() + 240
    while not journal.exists() or len(journal.read_bytes().splitlines()) < 2:
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.1)
    assert _belonging_to(scratch)
    process.send_signal(number)
    said = process.communicate(timeout=240)[1]
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert "the same command resumes" in said.splitlines()[-1]
        assert list(scratch.iterdir()) == []
    while left := _belonging_to(scratch):
        assert time.monotonic() < end, left
        time.sleep(0.1)


def _belonging_to(scratch: Path) -> list[int]:
    """A server names its scratch folder on its command line, and so do those that it forks."""
    found = psutil.process_iter(["pid", "cmdline", "status"])
    return [
        one.info["pid"]
        for one in found
        if str(scratch) in str(one.info["cmdline"]) and one.info["status"] != psutil.STATUS_ZOMBIE
    ]
