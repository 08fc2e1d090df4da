"""What holds when the process dies and when the server misbehaves: real processes, real kill -9, a real server."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelmill.base.rows import Row
from kernelmill.llm.journal import JournalReader
from kernelmill.llm.prompts import Prompt
from kernelmill.store import Source
from kernelmill.testing.fake_endpoint import CHAOS, FakeEndpoint, difficulty_for
from tests.conftest import command, evals_row, read_rows, write_rows

ROWS = 1200
KILLS = 10
CONCURRENCY = 32


def right(row: dict[str, Any]) -> str:
    """What the fake endpoint answers for this row's prompt."""
    return difficulty_for(
        Prompt("rate").render(**{key: row["info"][key] for key in ("module_name", "python_code")})
    )


def journalled(path: Path) -> set[str]:
    """Hashes of the requests that the journal holds an answer to, as the server counts them."""
    if not path.exists():
        return set()
    with JournalReader(path) as journal:
        return {hashlib.sha256(call.request).hexdigest() for call in journal.calls()}


@pytest.mark.timeout(900)
@pytest.mark.heavy
def test_kill_nine_ten_times_then_resume_pays_nothing_twice(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "evals.jsonl", [evals_row(n) for n in range(ROWS)])
    output = tmp_path / "out" / "rows.jsonl"
    journal = tmp_path / "out" / "rate.journal.sqlite"
    moments = random.Random(time.time_ns())
    with FakeEndpoint(latency=0.1, remember=False) as endpoint:
        line = command(
            "rate",
            source,
            "-o",
            output,
            "--base-url",
            endpoint.base_url,
            "-c",
            CONCURRENCY,
            "--model",
            "fake",
        )
        paid: list[tuple[set[str], Counter[str]]] = []
        for _ in range(KILLS):
            before, moment = endpoint.asked.total(), moments.randrange(80)
            process = subprocess.Popen(line, stderr=subprocess.DEVNULL)
            # By calls, and then at any moment of one: ten kills leave something to do, however quick or slow this machine is.
            while endpoint.asked.total() <= before + moment and process.poll() is None:
                time.sleep(0.01)
            time.sleep(moments.uniform(0.0, 0.1))
            assert process.poll() is None, "the run was over before it could be killed"
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            assert not output.exists()
            paid.append((journalled(journal), endpoint.asked.copy()))
        finished = subprocess.run(line, capture_output=True, text=True, timeout=400)
        assert finished.returncode == 0, finished.stderr
        asked = endpoint.asked
    for keys, counts in paid:
        assert all(asked[key] == counts[key] for key in keys), "an answered call was made again"
    assert len(paid[-1][0]) > ROWS / 20
    assert len(asked) == ROWS
    assert asked.total() - ROWS <= KILLS * CONCURRENCY, (
        "more calls were repeated than were in flight at the kills"
    )
    rows = read_rows(output)
    assert [row["example_id"] for row in rows] == list(range(ROWS))
    assert all(row["difficulty"] == right(row) for row in rows)


@pytest.mark.timeout(900)
def test_no_row_is_lost_or_wrong_when_a_fifth_of_the_calls_fails_in_every_way(
    tmp_path: Path, mill_process: Callable[..., Any]
) -> None:
    rows = [evals_row(n, reward=0.5 if n % 10 == 0 else 1.0) for n in range(700)]
    source = write_rows(tmp_path / "evals.jsonl", rows)
    rates = {behaviour: 0.2 / len(CHAOS) for behaviour in CHAOS}
    with FakeEndpoint(script=rates, latency=0.02, retry_after=0.3, slow=0.5, seed=time.time_ns()) as endpoint:
        done = mill_process(
            "rate", source, "-o", "out/rows.jsonl", "--base-url", endpoint.base_url, "--model", "fake", "-c", 64,
            "--timeout", 3, timeout=800,
        )  # fmt: skip
        assert set(endpoint.behaved) == {"ok", *CHAOS}, "not every misbehaviour was met"
    assert done.returncode == 0, done.stderr
    kept, rejected = read_rows(tmp_path / "out/rows.jsonl"), read_rows(tmp_path / "out/rows.rejected.jsonl")
    assert sorted(row["example_id"] for row in kept + [bad["row"] for bad in rejected]) == list(range(700))
    assert all(row["difficulty"] == right(row) for row in kept)
    assert all(bad["reason"] for bad in rejected)
    unusable = [bad for bad in rejected if "reward" not in bad["reason"]]
    assert len(unusable) < 7
    assert all(len(bad["attempts"]) == 3 for bad in unusable)
    manifest = json.loads((tmp_path / "out/rows.manifest.json").read_bytes())
    assert manifest["rows"]["in"] == 700 == len(kept) + len(rejected)


def test_ctrl_c_says_what_is_left_and_the_same_command_finishes(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "evals.jsonl", [evals_row(n) for n in range(200)])
    with FakeEndpoint(latency=0.3) as endpoint:
        line = command(
            "rate",
            source,
            "-o",
            "out/rows.jsonl",
            "--base-url",
            endpoint.base_url,
            "--model",
            "fake",
            "-c",
            16,
        )
        process = subprocess.Popen(line, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
        while not endpoint.answered:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=240)
        assert process.returncode == 130
        assert "finishing what is in flight" in said
        assert "run the same command to resume" in said.splitlines()[-1]
        assert "Traceback" not in said
        assert not (tmp_path / "out/rows.jsonl").exists()
        assert endpoint.answered.total() == endpoint.asked.total() < 200
        assert subprocess.run(line, cwd=tmp_path, capture_output=True, timeout=240).returncode == 0
        assert endpoint.asked.total() == 200
    assert len(read_rows(tmp_path / "out/rows.jsonl")) == 200


@pytest.mark.parametrize("phase", ["plan", "write"])
def test_ctrl_c_is_heard_while_rows_are_read_and_written(
    tmp_path: Path, mill: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    write_rows(tmp_path / "evals.jsonl", [evals_row(n, reward=0.1) for n in range(20_000)])
    passes, after = [], []
    read = Source.rows

    def interrupted(self: Source) -> Iterator[Row]:
        passes.append(phase)
        for row in read(self):
            if row.index == 5000 and len(passes) == (1 if phase == "plan" else 2):
                os.kill(os.getpid(), signal.SIGINT)
                after.append(row.index)
            elif after:
                after.append(row.index)
            yield row

    monkeypatch.setattr(Source, "rows", interrupted)
    done = mill("rate", "evals.jsonl", "-o", "out/rows.jsonl", "--rater", "static", "--no-trace")
    assert done.returncode == 130
    assert 1 <= len(after) <= 1000, "rows are read on after Ctrl-C"
    assert done.stderr.splitlines()[-1].startswith("kernelmill: interrupted")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out/rows.jsonl").exists()
