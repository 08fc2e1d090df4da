"""Work in processes: in order, few at once, errors and deaths told."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures.process import _ExecutorManagerThread
from pathlib import Path

import psutil
import pytest

from kernelmill.base.parallel import ALONE, WAITING, mapped
from kernelmill.errors import MillError
from tests.conftest import command, evals_row, write_rows


def _square(number: int) -> tuple[int, int]:
    return number * number, os.getpid()


def _fail_at_seven(number: int) -> int:
    if number == 7:
        raise ValueError("seven")
    return number


def _die_at_seven(number: int) -> int:
    if number == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_results_come_in_order_and_from_other_processes() -> None:
    results = list(mapped(_square, range(40), processes=2))
    assert [square for square, _ in results] == [number * number for number in range(40)]
    assert {process for _, process in results[:ALONE]} == {os.getpid()}
    assert os.getpid() not in {process for _, process in results[ALONE:]}


def test_one_process_means_this_one() -> None:
    assert {process for _, process in mapped(_square, range(9), processes=1)} == {os.getpid()}


def test_only_a_few_items_are_taken_ahead() -> None:
    taken = 0

    def items() -> Iterator[int]:
        nonlocal taken
        for number in range(1000):
            taken += 1
            yield number

    results = mapped(_square, items(), processes=2)
    for _ in range(ALONE + 1):
        next(results)
    assert taken <= ALONE + 2 * WAITING + 1
    results.close()  # type: ignore[attr-defined]


def test_an_error_in_a_worker_is_raised_here() -> None:
    with pytest.raises(ValueError, match="seven"):
        list(mapped(_fail_at_seven, range(20), processes=2))


def test_a_killed_worker_is_told_and_not_waited_for() -> None:
    with pytest.raises(MillError, match="a worker process was killed"):
        list(mapped(_die_at_seven, range(20), processes=2))


def test_ctrl_c_while_the_pool_is_started_is_an_interrupt_when_it_has_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = _ExecutorManagerThread.start

    def interrupted(thread: _ExecutorManagerThread) -> None:
        signal.raise_signal(signal.SIGINT)
        start(thread)

    monkeypatch.setattr(_ExecutorManagerThread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(mapped(_square, range(20), processes=2))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.heavy
def test_workers_end_with_the_process_they_work_for(tmp_path: Path, number: int) -> None:
    write_rows(tmp_path / "rows.jsonl", [evals_row(n) for n in range(30_000)])
    process = subprocess.Popen(
        command("unique", "rows.jsonl", "-o", "out.jsonl"), cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    parent = psutil.Process(process.pid)
    while len(children := parent.children(recursive=True)) < 4:
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(0.5)  # they are there, and now at work
    process.send_signal(number)
    _, said = process.communicate(timeout=240)
    _, alive = psutil.wait_procs(children, timeout=240)
    assert not alive
    if number == signal.SIGTERM:
        assert process.returncode == 130
        assert said.splitlines()[-1] == "kernelmill: interrupted"
        assert not list(tmp_path.glob(".out*.tmp"))
