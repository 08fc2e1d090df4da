"""A run keeps the order, runs what is owed once and some at a time, and stops cleanly. With threads and with tasks."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelmill.base.control import Control
from kernelmill.errors import Interrupted, MillError, OutputError
from kernelmill.runner import run as module
from kernelmill.runner.executors import Executor, Tasks, Threads
from kernelmill.runner.progress import ItemProgress
from kernelmill.runner.run import Job, run_all, work_through


class Work:
    """Runs numbers in one of the two ways, and remembers which and how many at once."""

    def __init__(self, how: str, at_once: int = 2) -> None:
        self.how, self.at_once = how, at_once
        self.begun: list[int] = []
        self.running = self.most = 0
        self.fails: dict[int, BaseException] = {}
        self._lock = threading.Lock()

    def executor(self, _: object) -> Executor[int, str]:
        if self.how == "threads":
            return Threads(self._blocking, self.at_once)
        return Tasks(self._async, self.at_once)

    def _begin(self, item: int) -> None:
        with self._lock:
            self.begun.append(item)
            self.running += 1
            self.most = max(self.most, self.running)

    def _end(self, item: int) -> str:
        with self._lock:
            self.running -= 1
        if item in self.fails:
            raise self.fails[item]
        return f"result {item}"

    def _blocking(self, item: int) -> str:
        self._begin(item)
        time.sleep(0.0005 * (item % 3))
        return self._end(item)

    async def _async(self, item: int) -> str:
        self._begin(item)
        for _ in range(item % 3):
            await asyncio.sleep(0)
        return self._end(item)


def go(work: Work, items: list[int], **more: Any) -> list[str]:
    return run_all(items, work.executor, ItemProgress("numbers done"), str, **more)


HOW = pytest.mark.parametrize("how", ["threads", "tasks"])


@HOW
@settings(max_examples=40, deadline=None)
@given(
    items=st.lists(st.integers(0, 20), max_size=20),
    before=st.sets(st.integers(0, 20)),
    at_once=st.integers(1, 5),
)
def test_results_are_in_order_and_each_owed_item_runs_once_within_the_limit(
    how: str, items: list[int], before: set[int], at_once: int
) -> None:
    work, come = Work(how, at_once), list[str]()
    progress = ItemProgress("numbers done")

    def known(item: int) -> str | None:
        return f"result {item}" if item in before else None

    found = run_all(items, work.executor, progress, str, known=known, done=come.append)
    assert found == [f"result {item}" for item in items]
    owed = [item for item in items if item not in before]
    assert Counter(work.begun) == Counter(owed)
    assert Counter(come) == Counter(f"result {item}" for item in owed)
    assert work.most <= at_once
    assert (progress.total, progress.done, progress.doing) == (len(owed), len(owed), {})


def test_no_executor_is_made_where_nothing_is_owed() -> None:
    def none(_: object) -> Executor[int, str]:
        raise AssertionError("it was asked for")

    assert run_all([1, 2], none, ItemProgress("numbers"), str, known=str) == ["1", "2"]
    assert run_all([], none, ItemProgress("numbers"), str) == []


@HOW
@pytest.mark.parametrize("error", [OutputError("the disk is full"), KeyError("a bug")])
def test_an_item_that_raises_stops_the_run_with_its_error_and_keeps_what_is_done(
    how: str, error: Exception
) -> None:
    work, come = Work(how, at_once=1), list[str]()
    work.fails[3] = error
    with pytest.raises(type(error)) as raised:
        go(work, list(range(9)), done=come.append)
    assert raised.value is error
    assert work.begun == [0, 1, 2, 3]
    assert come == ["result 0", "result 1", "result 2"]


@HOW
def test_a_result_that_cannot_be_kept_stops_the_run(how: str) -> None:
    def full(_: str) -> None:
        raise OSError(28, "No space left on device")

    work = Work(how, at_once=1)
    with pytest.raises(OSError, match="No space"):
        go(work, [1, 2, 3], done=full)
    assert work.begun == [1]


@pytest.mark.parametrize("ends", [False, True])
def test_threads_close_the_servers_that_they_wait_for_if_the_run_ends_early_only(ends: bool) -> None:
    class Server:
        closed = threading.Event()

        def close(self) -> None:
            self.closed.set()

    server = Server()

    def wait(item: int) -> int:
        if item == 2 and not ends:
            raise OutputError("no")
        if item == 1 and not ends:
            server.closed.wait()  # a request that only a closed server ends
        return item

    def go() -> list[int]:
        return run_all([1, 2], lambda _: Threads(wait, 2, server), ItemProgress("numbers"), str)

    if ends:
        assert go() == [1, 2]
    else:
        with pytest.raises(OutputError):
            go()
    assert server.closed.is_set() is not ends


RECORDED = """
import sys, time
from pathlib import Path
from kernelmill.runner.executors import Threads
from kernelmill.runner.progress import ItemProgress
from kernelmill.runner.run import run_all

def work(item):
    with open("begun", "a") as file:
        file.write(f"{item}\\n")
    time.sleep(0.01)
    return item

def done(item):
    with open("record", "a") as file:
        file.write(f"{item}\\n")

record = Path("record")
kept = {int(line) for line in record.read_text().split("\\n")[:-1]} if record.exists() else set()
known = lambda item: item if item in kept else None
try:
    found = run_all(range(200), lambda _: Threads(work, 2), ItemProgress("numbers"), str, known=known, done=done)
except KeyboardInterrupt:
    sys.exit(130)
print(*found)
"""


def recorded(number: signal.Signals | None) -> subprocess.Popen[str]:
    """Run 200 items that are recorded; with a signal, send it when a few more are."""
    record = Path("record")
    before = record.stat().st_size if record.exists() else 0
    process = subprocess.Popen([sys.executable, "-c", RECORDED], stdout=subprocess.PIPE, text=True)
    while number is not None and (not record.exists() or record.stat().st_size < before + 20):
        assert process.poll() is None
        time.sleep(0.005)
    if number is not None:
        process.send_signal(number)
    return process


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_was_ended_goes_on_and_repeats_only_what_was_in_flight(
    tmp_path: Path, number: signal.Signals
) -> None:
    for _ in range(2):
        process = recorded(number)
        assert process.communicate()[0] == ""
        assert process.returncode == (130 if number == signal.SIGINT else -number)
    printed, _ = recorded(None).communicate()
    assert printed == " ".join(map(str, range(200))) + "\n"
    begun = Counter(Path("begun").read_text().split())
    assert set(begun) == {str(n) for n in range(200)}
    assert begun.total() <= 200 + 2 * 2


def jobs(keys: str) -> Iterator[Job[str]]:
    return (Job(key, f"name of {key}", key) for key in keys)


def through(
    keys: Iterator[Job[str]], work: Callable[[str], Any], control: Control, at_once: int = 2, **more: Any
) -> list[str]:
    come: list[str] = []

    async def go() -> None:
        await work_through(keys, Tasks(work, at_once), lambda job, _: come.append(job.key), control, **more)

    try:
        asyncio.run(go())
    finally:
        control.come = come  # type: ignore[attr-defined]
    return come


@settings(max_examples=40, deadline=None)
@given(st.text("abcdef", max_size=30), st.sets(st.sampled_from("abcdef")), st.integers(1, 4))
def test_a_key_runs_once_and_nothing_is_read_ahead(keys: str, kept: set[str], at_once: int) -> None:
    read, begun, record = 0, list[str](), set(kept)

    def counted() -> Iterator[Job[str]]:
        nonlocal read
        for job in jobs(keys):
            read += 1
            yield job

    async def work(key: str) -> None:
        begun.append(key)
        assert read <= sum(one in kept or one in begun for one in keys[:read]) + at_once
        await asyncio.sleep(0)
        record.add(key)  # durable before it is reported

    through(counted(), work, Control(), at_once, known=record)
    assert sorted(begun) == sorted(set(keys) - kept)


@pytest.mark.parametrize("paid", [False, True])
def test_a_stop_cancels_work_in_flight_unless_it_is_paid_and_starts_nothing_new(paid: bool) -> None:
    control, ended = Control(), list[str]()

    async def work(key: str) -> None:
        if key == "b":
            control.stop(Interrupted("interrupted"))
        await asyncio.sleep(0.01)
        ended.append(key)

    with pytest.raises(Interrupted):
        through(jobs("abcdef"), work, control, paid=paid)
    assert ended == (["a", "b"] if paid else [])
    assert control.come == ended  # type: ignore[attr-defined]


def test_the_second_interrupt_gives_paid_work_up() -> None:
    control = Control()

    async def work(key: str) -> None:
        control._interrupt()
        control._interrupt()
        await asyncio.sleep(100_000)

    with pytest.raises(Interrupted):
        through(jobs("ab"), work, control, paid=True)


def test_signals_that_were_ignored_stay_ignored_and_handlers_come_back() -> None:
    def mine(*_: object) -> None:
        raise AssertionError("the run has handlers of its own")

    async def go(control: Control) -> None:
        with control.signals():
            signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(0.01)
            assert control.error is None
            signal.raise_signal(signal.SIGTERM)
            await control.stopping.wait()

    before = [signal.signal(signal.SIGINT, signal.SIG_IGN), signal.signal(signal.SIGTERM, mine)]
    try:
        asyncio.run(go(Control()))
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGTERM, before[1])


def test_work_that_waits_for_a_retry_is_replaced() -> None:
    control, begun = Control(), list[str]()

    async def work(key: str) -> None:
        begun.append(key)
        if key == "a":
            await control.pause(100_000, replace=True)  # until the run stops
        if key == "f":
            control.stop(MillError("enough"))

    with pytest.raises(MillError, match="enough"):
        through(jobs("abcdef"), work, control, at_once=1, paid=True)
    assert begun == list("abcdef")


def test_the_progress_knows_what_is_done_and_a_fault_of_it_is_not_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "TICK", 0.001)
    doing: dict[str, str] = {}
    seen: list[list[str]] = []

    async def work(key: str) -> None:
        await asyncio.sleep(0.02)

    through(jobs("ab"), work, Control(), doing=doing, tick=lambda: seen.append(list(doing.values())))
    assert ["name of a", "name of b"] in seen
    assert doing == {}

    def broken() -> None:
        raise KeyError("a bug")

    with pytest.raises(KeyError):
        through(jobs("ab"), work, Control(), tick=broken)
