"""Work that costs nothing stops at the first signal, and at once on a full disk, in one line. Real processes, signals and disks."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

from kernelmill.errors import OutputError
from kernelmill.llm import journal as journal_module
from kernelmill.llm.journal import Journal
from tests.conftest import ROOT, command, evals_row, write_rows
from tests.decompose.trees import edit, write_tree

ENDLESS = """
import time
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1

def get_inputs():
    time.sleep(100_000)
    return [torch.randn(4, 8)]

def get_init_inputs():
    return []
"""
FREE = {
    "rate": ("--rater", "static", "--trace-timeout", "90000"),
    "specs": ("--writer", "static", "--trace-timeout", "90000"),
    "synthesize": ("--teacher", "inductor", "--device", "cpu"),
}


@pytest.mark.parametrize(
    ("stage", "number"),
    [("rate", signal.SIGINT), ("specs", signal.SIGTERM), ("synthesize", signal.SIGINT), ("synthesize", signal.SIGTERM)],
)  # fmt: skip
def test_the_first_signal_ends_work_that_costs_nothing_without_waiting_for_it(
    tmp_path: Path, stage: str, number: signal.Signals
) -> None:
    row = evals_row(1, 1.0)
    row["info"] |= {"module_name": "Model", "python_code": ENDLESS}
    write_rows(tmp_path / "rows.jsonl", [row] * 3)
    process = subprocess.Popen(
        command(stage, "rows.jsonl", "-o", "out.jsonl", *FREE[stage]), stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    for line in process.stderr:
        if f"{stage}: " in line:  # the bar's first line: work is in flight, and would never end
            break
    process.send_signal(number)
    _, said = process.communicate(timeout=100)
    assert process.returncode == 130
    assert said.count("\n") <= 3
    assert said.splitlines()[-1].startswith("kernelmill: interrupted")
    assert "finishing" not in said
    assert not Path("out.jsonl").exists()


CANDIDATE = """
import torch
import triton
import triton.language as tl

@triton.jit
def plus_one(x, y, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        plus_one[(1,)](x, y, x.numel(), BLOCK=32)
        return y
"""
SLEEPS = "def get_inputs():\n    import time\n\n    time.sleep(100_000)"
NOTEBOOK = """
import asyncio
from pathlib import Path
from kernelmill.evaluate import Options, evaluate

async def cell():
    evaluate(Path("set/1_Endless.py").read_text(), Path("candidate.py").read_text(), Options(device="cpu", timeout=90000))

try:
    asyncio.new_event_loop().run_until_complete(cell())  # as notebooks do: asyncio.run keeps the first Ctrl-C to itself
except KeyboardInterrupt:
    raise SystemExit("kernelmill: interrupted") from None
"""
ENDLESS_REQUESTS = {
    "admit": command("admit", "set", "--timeout", "90000"),
    "import": command("problems", "import", "set", "--into", "imported", "--timeout", "90000"),
    "prove": command("prove", "tree", "--timeout", "90000"),
    "evaluate in a notebook": [sys.executable, "-c", NOTEBOOK],
}


def children_of_servers(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The confined processes that run a request."""
    try:
        return [child for server in psutil.Process(process.pid).children() for child in server.children()]
    except psutil.Error:
        return []


@pytest.mark.parametrize(
    ("what", "number"),
    [
        ("admit", signal.SIGINT),
        pytest.param("admit", signal.SIGTERM, marks=pytest.mark.heavy),
        pytest.param("import", signal.SIGINT, marks=pytest.mark.heavy),
        pytest.param("import", signal.SIGTERM, marks=pytest.mark.heavy),
        pytest.param("prove", signal.SIGTERM, marks=pytest.mark.heavy),
        pytest.param("evaluate in a notebook", signal.SIGINT, marks=pytest.mark.heavy),
    ],
)
def test_a_signal_ends_threads_that_wait_for_confined_processes(
    tmp_path: Path, what: str, number: signal.Signals
) -> None:
    (tmp_path / "set").mkdir()
    for n in range(1, 4):  # more than run at a time: what waits is not begun
        (tmp_path / f"set/{n}_Endless.py").write_text(ENDLESS.replace("x + 1", f"x + {n}"))
    (tmp_path / "candidate.py").write_text(CANDIDATE)
    edit(write_tree(tmp_path / "tree"), "level_3_model/net.py", "def get_inputs():", SLEEPS)
    process = subprocess.Popen(
        ENDLESS_REQUESTS[what], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while not children_of_servers(process) and process.poll() is None:
        time.sleep(0.05)
    processes = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    printed, said = process.communicate(timeout=100)  # the requests themselves would take a day
    assert printed == ""
    assert said.splitlines()[-1] == "kernelmill: interrupted"
    assert process.returncode == (1 if what == "evaluate in a notebook" else 130)
    assert "Traceback" not in said
    assert not psutil.wait_procs(processes, timeout=100)[1]


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Any]:
    """A full disk for the processes of the block: a small file system where we may mount one, else a limit on files."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    try:
        mounted = not subprocess.run(mount, capture_output=True).returncode
    except FileNotFoundError:
        mounted = False
    try:
        yield None if mounted else lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size // 3, size // 3))
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def on_full_disk(size: int, *arguments: object) -> list[str]:
    """What a command says on standard error that runs out of space."""
    with small_disk(Path("disk").absolute(), size) as limit:
        done = subprocess.run(
            command(*arguments), cwd="disk", capture_output=True, text=True, timeout=200, preexec_fn=limit,
            env={**os.environ, "COLUMNS": "300"},
        )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "never retrieved" not in done.stderr
    said = done.stderr.splitlines()
    progress = re.compile(rf"source  |\d+ (rows|rollouts): |{arguments[0]}: ")  # said while nothing is wrong
    assert [line for line in said if not progress.match(line)] == said[-1:], said
    assert said[-1].startswith("kernelmill: ")
    return said


def test_a_disk_that_is_full_is_one_line_and_names_a_journal_only_where_there_is_one(tmp_path: Path) -> None:
    rows = [evals_row(n, 1.0, note="x" * 20_000) for n in range(40)]
    source = write_rows(tmp_path / "rows.jsonl", rows)
    said = on_full_disk(300_000, "unique", source, "-o", "out.jsonl")
    assert said[-1].startswith("kernelmill: ")
    assert "(out.jsonl): " in said[-1]
    assert "run the same command again" in said[-1]
    assert "journal" not in "".join(said)


@pytest.mark.parametrize(
    ("size", "modules", "what"),
    [(400_000, 1, "what is answered is in the journal"), (150_000, 80, "could not be written")],
)
def test_a_free_stage_on_a_full_disk_stops_at_once_and_says_where_its_answers_are(
    tmp_path: Path, size: int, modules: int, what: str
) -> None:
    rows = [evals_row(n, 1.0, note="x" * 10_000) for n in range(80)]
    for n, row in enumerate(rows):
        row["info"] = rows[n % modules]["info"]
    source = write_rows(tmp_path / "rows.jsonl", rows)
    said = on_full_disk(size, "rate", source, "-o", "out.jsonl", "--rater", "static", "--no-trace")
    assert what in said[-1]
    assert "rate.journal.sqlite" in said[-1]
    assert not [line for line in said if "trying" in line or "Finishing" in line]


@pytest.mark.heavy
def test_the_teacher_on_a_full_disk_is_one_line_that_names_its_journal(tmp_path: Path) -> None:
    code = ENDLESS.replace("    time.sleep(100_000)\n", "")
    (tmp_path / "1_Plus.py").write_text(f"{code}\n# {'x' * 120_000}\n")
    said = on_full_disk(
        150_000, "synthesize", "--teacher", "inductor", "--problems", tmp_path / "1_Plus.py", "-o", "out.jsonl", "--device", "cpu"
    )  # fmt: skip
    assert "synthesize.journal.sqlite" in said[-1]


def full_journal(journal: Journal) -> None:
    """The nearest thing to a full disk inside one process: the database may not grow any more."""
    connect = journal_module._connect

    def small(path: Path) -> sqlite3.Connection:
        connection = connect(path)
        connection.execute("PRAGMA max_page_count=1")
        return connection

    journal_module._connect = small  # type: ignore[assignment]
    try:
        journal.__enter__()
    finally:
        journal_module._connect = connect


def test_what_cost_nothing_is_not_tried_again_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(journal_module.time, "sleep", waits.append)
    journal = Journal(tmp_path / "j.sqlite")
    full_journal(journal)
    try:
        with pytest.raises(OutputError, match=r"j\.sqlite could not be written .*is the disk full"):
            asyncio.run(journal.add_fact("key", os.urandom(200_000).hex()))
    finally:
        journal.__exit__()
    assert waits == []


def test_a_write_that_fails_after_its_caller_was_cancelled_is_no_bug_of_asyncio(tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []

    async def cancelled() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context))
        task = asyncio.create_task(journal.add_fact("key", os.urandom(200_000).hex()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        journal._queue.put(None)
        await asyncio.to_thread(journal._thread.join)
        await asyncio.sleep(0)
        gc.collect()

    journal = Journal(tmp_path / "j.sqlite")
    full_journal(journal)
    try:
        asyncio.run(cancelled())
    finally:
        journal.__exit__()
    assert told == []


def test_commands_that_cost_nothing_were_gone_within_two_seconds_of_a_signal() -> None:
    """Measured on an idle machine by bench/stopping.py, `evaluate` on kernels from elsewhere."""
    found = json.loads((ROOT / "bench/results/stopping.json").read_text(encoding="utf-8"))
    assert {"rate", "specs", "synthesize", "admit", "decompose", "evaluate"} == set(found["commands"])
    rounds = [one for all_of_it in found["commands"].values() for one in all_of_it]
    assert max(one["seconds"] for one in rounds) <= 2
    assert {one["code"] for one in rounds} == {130}
