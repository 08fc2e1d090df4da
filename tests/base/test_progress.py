"""Progress as people see it: one line of 80 columns that says how fast it goes and what is being worked on."""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import os
import pty
import re
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelmill import cli
from kernelmill.base.control import Stats
from kernelmill.base.rows import Row
from kernelmill.base.terminal import fit, rate
from kernelmill.evaluate.progress import Now, watch
from kernelmill.evaluate.progress import Progress as Judging
from kernelmill.runner import progress, run
from kernelmill.runner.executors import Threads
from kernelmill.stages.progress import Progress
from kernelmill.store import progress_source
from kernelmill.store.source import Source
from kernelmill.testing.fake_endpoint import FakeEndpoint
from tests.conftest import command, evals_row, write_rows

LONG = "AVeryLongModuleNameThatSomebodyGaveToAFusedAttentionBlockWithRotaryEmbeddings"


def stats(total: int, done: int, seconds: float, name: str, many: int) -> Stats:
    made = Stats(
        total=total, done=done, in_flight=many, calls=done, tokens_in=many * 10**6, tokens_out=many * 999
    )
    made.retries["500: trouble"] = many
    made.doing = {"key": name} if name else {}
    made.started = time.monotonic() - seconds
    return made


@pytest.mark.parametrize("name", ["", "Softmax", LONG, "a\x1b[2Jb\nc"])
def test_a_line_of_progress_fits_80_columns_and_never_shows_a_rate_of_nothing(name: str) -> None:
    sizes = [(10, 0), (10, 1), (18_162, 7), (10**9, 10**8)]
    for (total, done), seconds, many in itertools.product(sizes, [0.0, 0.01, 30.0, 90_000.0], [0, 3, 4096]):
        progress = Progress(stats(total, done, seconds, name, many), "decontaminate", priced=True)
        for width in (80, 120):
            line = progress.line(width)
            assert len(line) <= width, line
            assert not re.search(r"(?<![\d.])0(\.0)?/", line), line
            assert line.startswith(f"decontaminate: {done:,} of {total:,}")
            assert "\n" not in line
            assert "\x1b" not in line


def test_a_line_of_progress_names_what_is_being_worked_on() -> None:
    assert "Softmax" in Progress(stats(500, 20, 60.0, "Softmax", 64), "rate", priced=True).line()
    long = Progress(stats(500, 20, 60.0, LONG, 64), "rate", priced=True).line()
    assert "AVeryLong" in long, "a long name is told by its ends"
    assert "Embeddings" in long


@pytest.mark.parametrize(
    ("done", "seconds", "shown"),
    [(0, 5.0, ""), (1, 0.0, ""), (640, 2.0, "320/s"), (7, 2.0, "3.5/s"), (1, 5.0, "12.0/min"), (3, 3600.0, "3.0/h"),
     (1, 360_000.0, "0.24/day")],
)  # fmt: skip
def test_a_rate_is_in_the_unit_in_which_it_can_be_read(done: int, seconds: float, shown: str) -> None:
    assert rate(done, seconds) == shown


def test_what_does_not_fit_goes_by_rank_and_the_first_part_stays() -> None:
    assert fit([(0, "head"), (2, "x" * 70), (1, "y" * 20)]) == f"head  {'y' * 20}"
    assert fit([(0, "h" * 200), (1, "no room")]) == "h" * 79 + "…"


def test_a_batch_of_verdicts_fits_too_and_names_the_candidate(capsys: pytest.CaptureFixture[str]) -> None:
    now = Now(candidates=[("softmax/3", "interpreter", 0.0), (LONG, "GPU 0", 5.0)])
    progress = Judging(12_345, 0, lambda: now, clock=iter(range(0, 10_000, 20)).__next__)
    capsys.readouterr()
    progress.show()
    line = capsys.readouterr().err.rstrip("\n")
    assert "softmax/3: interpreter" in line
    assert "0.0" not in line
    assert len(line) <= 80


@pytest.mark.parametrize("name", ["Softmax", LONG, "a\x1b[2Jb\nc"])
def test_work_in_threads_is_told_while_it_is_done_in_80_columns(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The way of admit, prove, decompose and problems import."""
    monkeypatch.setattr(run, "TICK", 0.01)
    monkeypatch.setattr(progress, "EVERY", 0.01)
    shown = progress.ItemProgress("problems tried")
    line, said = shown.line, [""]

    def said_line(width: int = 80) -> str:
        said.append(line(width))
        return said[-1]

    monkeypatch.setattr(shown, "line", said_line)

    def work(item: int) -> int:
        shown.total = 1_234_500  # as if there were that many
        while not said[-1].startswith(f"{item - 1} of 1,234,500"):
            time.sleep(0.01)
        return item

    def known(item: int) -> int | None:
        return item if item < 1 else None

    run.run_all(range(3), lambda _: Threads(work, 1), shown, lambda _: name, known=known)
    shown.say("said by itself")
    lines = capsys.readouterr().err.splitlines()
    assert "said by itself" in lines
    assert any(line.startswith("0 of 1,234,500 problems tried  ") for line in lines), (
        "before the first is done"
    )
    assert any(line.startswith("1 of 1,234,500 problems tried") for line in lines)
    assert all(len(line) <= 80 and not re.search(r"(?<![\d.])0(\.0)?/", line) for line in lines)
    assert any(name[:7] in line or "\\x1b" in line for line in lines)


class _Long(Source):
    def rows(self) -> Iterator[Row]:
        yield from (Row(n, f"folder/{LONG}.jsonl:{n + 1}", b"{}") for n in range(5000))


def test_reading_rows_says_where_it_is_and_how_fast_it_goes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress_source, "_EVERY", 0.0)
    assert len(list(progress_source.ProgressSource(_Long("x", [], {})).rows())) == 5000
    lines = capsys.readouterr().err.splitlines()
    assert re.match(r"1,000 rows read  \S+/s  folder/AVery.*\.jsonl:1$", lines[0])
    assert all(len(line) <= 80 for line in lines)


def test_what_is_done_for_one_candidate_fits_too(capsys: pytest.CaptureFixture[str]) -> None:
    async def some() -> None:
        now: Any = {"label": LONG, "doing": "probe " + "x" * 100, "gpu_lock": ""}
        watching = asyncio.create_task(watch(LONG, lambda: Now([(LONG, "interpreter", 0.0)], {}, [now])))
        await asyncio.sleep(0.05)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    asyncio.run(some())
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("AVeryLong")
    assert "interpreter" in line
    assert line.endswith("(0:00)")
    assert len(line) <= 80


@pytest.mark.heavy
def test_every_command_that_takes_long_names_what_it_works_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a terminal too, where admit and prove said nothing, and decompose only what was done."""
    monkeypatch.setattr(run, "TICK", 0.01)
    monkeypatch.setattr(progress, "EVERY", 0.01)
    (tmp_path / "models").mkdir()
    for name in ("1_first", "2_second"):
        code = evals_row(0)["info"]["python_code"].replace("Scale0", "Model")
        (tmp_path / f"models/{name}.py").write_text(code)
    for line, total in (
        (["decompose", "models", "-o", "out"], "2 models decomposed"),
        (["prove", "out/models/1_first"], "1 models tried"),
        (["admit", "models/1_first.py"], "1 problems tried"),
    ):
        assert cli.main([*line, "--workers", "1"]) == 0
        lines = [told for told in capsys.readouterr().err.splitlines() if total[2:] in told]
        assert any(f"0 of {total}" in told and "1_first" in told for told in lines), line
        assert all(len(told) <= 80 for told in lines), line


def test_on_a_terminal_of_80_columns_progress_is_one_line(tmp_path: Path) -> None:
    rows = [evals_row(n, 1.0) for n in range(8)]
    write_rows(tmp_path / "evals.jsonl", rows)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    with FakeEndpoint(latency=0.5) as endpoint:
        line = command(
            "rate",
            "evals.jsonl",
            "-o",
            "out.jsonl",
            "--base-url",
            endpoint.base_url,
            "--model",
            "fake",
            "-c",
            2,
        )
        environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": ""}
        process = subprocess.Popen(
            line, stdout=subprocess.DEVNULL, stderr=theirs, cwd=tmp_path, env=environment
        )
        os.close(theirs)
        shown = b""
        try:
            while piece := os.read(ours, 4096):
                shown += piece
        except OSError:
            pass  # how Linux says that the other end is closed
        assert process.wait(60) == 0
    os.close(ours)
    frames = [
        frame
        for frame in re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode()))
        if "of 8" in frame
    ]
    assert len(frames) > 3
    assert all(len(frame) <= 80 for frame in frames)
    assert b"\x1b[1A" not in shown, "a display of several lines goes up to draw itself again"
    assert any(row["info"]["module_name"] in frame for row in rows for frame in frames)
