"""Turns and own time: nobody pays for a neighbour, and nobody keeps what all share."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmill.sandbox import Doing, Reply, Sandbox
from kernelmill.sandbox.gpu_lock import PATIENCE, GpuLock
from kernelmill.sandbox.own_time import OwnTime, counted
from kernelmill.sandbox.wire import pack
from tests.conftest import own_children

pytestmark = pytest.mark.own_servers
WORKER = """
import os, stat, time
from kernelmill.sandbox import inside

def handle(request):
    if "draft" in request:
        inside.server.draft(request["draft"])
    inside.server.doing(request.get("doing", "nothing"))
    if "torn" in request:  # a part of a reply, and then the end
        time.sleep(request["torn"])
        for fd in range(3, 64):
            try:
                if stat.S_ISFIFO(os.fstat(fd).st_mode):
                    os.write(fd, b"x")
            except OSError:
                pass
        os._exit(0)
    if "say" in request:
        inside.server._end.sendall(bytes.fromhex(request["say"]))
        time.sleep(request.get("then", 0))
    if "turn" in request:
        with inside.server.holding_gpu(request["turn"] == "exclusive", request.get("cap", 600)):
            began = time.monotonic()
            time.sleep(request.get("keep", 0))
            if request.get("die"):
                os._exit(3)
            ended = time.monotonic()
        return {"began": began, "ended": ended}
    end = time.process_time() + request.get("work", 0)
    while time.process_time() < end:
        pass
    return {}
"""


@pytest.fixture
def sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandbox]:
    (tmp_path / "turn_worker.py").write_text(WORKER)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    with Sandbox("turn_worker", workers=8, timeout=120, memory_mb=512) as warm:
        warm.what_is_missing()  # it is ready: requests are taken in the order in which they come
        yield warm


def together(sandbox: Sandbox, *requests: dict[str, Any]) -> list[Reply]:
    """All at once; `limit` in a request is its time-out."""

    async def run() -> list[Reply]:
        tasks = []
        for request in requests:
            tasks.append(asyncio.create_task(sandbox.run(request, request.get("limit"))))
            await asyncio.sleep(0.1)  # they ask in this order
        return await asyncio.gather(*tasks)

    return asyncio.run(run())


def until(true: Callable[[], bool]) -> None:
    while not true():
        time.sleep(0.02)


def spans(replies: list[Reply]) -> list[tuple[float, float]]:
    assert [reply["kind"] for reply in replies] == ["ok"] * len(replies), replies
    return [(reply["result"]["began"], reply["result"]["ended"]) for reply in replies]


def overlap(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


# ------------------------------------------------------------------------------------------- the rule


class Hand:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["exclusive", "shared", "leave"])), max_size=60))
def test_who_is_alone_is_alone_and_everybody_has_a_turn_in_the_end(
    steps: list[tuple[int, str]],
) -> None:
    turns = GpuLock(Hand())
    for who, what in steps:
        if what == "leave":
            turns.leave(who)
        else:
            turns.ask(who, what == "exclusive", 10)
        turns.grant()
        exclusive = [turn for turn in turns.holding.values() if turn.exclusive]
        assert not exclusive or len(turns.holding) == 1
        assert not {turn.who for turn in turns.waiting} & set(turns.holding)
    for _ in range(10):  # those who have a turn leave, again and again
        for who in list(turns.holding):
            turns.leave(who)
        turns.grant()
    assert turns.waiting == []


def test_those_who_wait_to_be_alone_follow_each_other() -> None:
    turns = GpuLock(clock := Hand())
    for who, exclusive in ((1, False), (2, True), (3, True)):
        turns.ask(who, exclusive, 10)
    assert [turn.who for turn in turns.grant()] == [1]
    clock.time = PATIENCE
    turns.ask(4, False, 10)
    assert turns.grant() == [], "2 has waited for long enough"
    turns.leave(1)
    assert [turn.who for turn in turns.grant()] == [2]
    turns.ask(5, True, 10)  # too late for this round
    turns.leave(2)
    assert [turn.who for turn in turns.grant()] == [3]
    turns.leave(3)
    assert [turn.who for turn in turns.grant()] == [4]


def test_who_wants_to_be_alone_lets_others_begin_for_a_while_and_no_longer() -> None:
    turns = GpuLock(clock := Hand())
    turns.ask(1, False, 10)
    turns.grant()
    turns.ask(2, True, 10)
    turns.ask(3, False, 10)
    assert [turn.who for turn in turns.grant()] == [3]
    clock.time = PATIENCE
    turns.ask(4, False, 10)
    assert turns.grant() == []
    turns.leave(1)
    turns.leave(3)
    assert [turn.who for turn in turns.grant()] == [2]


def test_on_an_idle_device_nobody_waits_to_be_alone() -> None:
    turns = GpuLock(Hand())
    turns.ask(1, True, 10)
    assert [turn.who for turn in turns.grant()] == [1]


def test_a_turn_is_overdue_when_its_cap_is_over_and_waiting_does_not_count() -> None:
    clock = Hand()
    turns = GpuLock(clock)
    turns.ask(1, True, 10)
    turns.ask(2, True, 10)
    turns.grant()
    clock.time = 9.9
    assert turns.overdue() == []
    clock.time = 10
    assert [turn.who for turn in turns.overdue()] == [1]
    turns.leave(1)
    turns.grant()
    assert turns.overdue() == [], "2 waited for ten seconds, and has had its turn for none"
    assert turns.next_due() == 20


# ------------------------------------------------------------------------------------------- with processes


def test_many_are_beside_each_other_and_one_is_alone(sandbox: Sandbox) -> None:
    keep = {"keep": 0.5}
    first, second, exclusive = spans(
        together(sandbox, {"turn": "shared"} | keep, {"turn": "shared"} | keep, {"turn": "exclusive"} | keep)
    )
    assert overlap(first, second)
    assert not overlap(first, exclusive)
    assert not overlap(second, exclusive)


def test_waiting_for_a_turn_is_no_part_of_a_time_out(sandbox: Sandbox) -> None:
    holder, waiter = together(
        sandbox, {"turn": "exclusive", "keep": 3}, {"turn": "exclusive", "keep": 0, "limit": 1.0}
    )
    assert (holder["kind"], waiter["kind"]) == ("ok", "ok"), waiter
    assert waiter["seconds"] > 2, "it did wait for longer than it may run"


def test_who_has_a_turn_is_late_as_anybody(sandbox: Sandbox) -> None:
    (reply,) = together(sandbox, {"turn": "exclusive", "keep": 600, "limit": 1.0})
    assert (reply["kind"], reply["cut"]) == ("timeout", "")


def test_who_keeps_a_turn_is_ended_from_outside_and_its_draft_is_its_reply(sandbox: Sandbox) -> None:
    keeps = {"turn": "exclusive", "keep": 600, "cap": 1.0}
    kept, waiter = together(sandbox, keeps | {"draft": {"verdict": "so far"}}, {"turn": "exclusive"})
    assert (kept["kind"], kept["cut"], kept["result"]) == ("ok", "overdue", {"verdict": "so far"})
    assert waiter["kind"] == "ok"
    (kept,) = together(sandbox, keeps)
    assert (kept["kind"], kept["cut"]) == ("timeout", "")
    assert "held the GPU lock" in kept["message"]


def test_a_draft_that_was_taken_back_is_no_reply(sandbox: Sandbox) -> None:
    (kept,) = together(sandbox, {"turn": "exclusive", "keep": 600, "cap": 1.0, "draft": None})
    assert kept["kind"] == "timeout"


def test_a_draft_is_not_the_reply_of_who_gives_one(sandbox: Sandbox) -> None:
    (reply,) = together(sandbox, {"draft": {"verdict": "so far"}})
    assert (reply["result"], reply["cut"]) == ({}, "")


def test_the_turn_of_who_dies_goes_to_the_next(sandbox: Sandbox) -> None:
    dead, waiter = together(sandbox, {"turn": "exclusive", "keep": 0.3, "die": True}, {"turn": "exclusive"})
    assert (dead["kind"], waiter["kind"]) == ("crashed", "ok")


def test_it_can_be_seen_who_has_a_turn_and_who_waits(sandbox: Sandbox) -> None:
    async def run() -> list[Doing]:
        holder = asyncio.create_task(
            sandbox.run({"turn": "exclusive", "keep": 3, "label": "a", "doing": "timing"})
        )
        await asyncio.to_thread(until, lambda: any(one["gpu_lock"] == "exclusive" for one in sandbox.doing()))
        waiter = asyncio.create_task(sandbox.run({"turn": "shared", "label": "b"}))
        await asyncio.to_thread(until, lambda: any(one["gpu_lock"] == "waits" for one in sandbox.doing()))
        seen = sandbox.doing()
        await asyncio.gather(holder, waiter)
        await asyncio.to_thread(until, lambda: sandbox.doing() == [])
        return seen

    seen = asyncio.run(run())
    told = {one["label"]: (one["doing"], one["gpu_lock"]) for one in seen}
    assert told == {"a": ("timing", "exclusive"), "b": ("nothing", "waits")}
    assert all(one["gpu_lock_since"] <= time.monotonic() for one in seen)


def said(text: str) -> dict[str, Any]:
    """A request whose child says this to the server."""
    return {"say": pack(text.encode()).hex(), "then": 600}


@pytest.mark.parametrize(
    "text",
    [
        '{"gpu_lock": "exclusive", "cap": 1' + "0" * 400 + "}",
        '{"gpu_lock": "exclusive", "cap": Infinity}',
        '{"gpu_lock": "exclusive", "cap": NaN}',
        '{"gpu_lock": "exclusive", "cap": -1}',
        '{"gpu_lock": "exclusive"}',
        "[" * 100_000,
        "not JSON",
        "[]",
    ],
)
def test_nonsense_over_the_line_costs_the_child_alone(sandbox: Sandbox, text: str) -> None:
    bad, neighbour = together(sandbox, said(text), {"turn": "exclusive"})
    assert bad["kind"] == "crashed", bad
    assert neighbour["kind"] == "ok"


def test_a_child_that_ends_within_its_reply_while_the_server_is_busy_costs_itself_alone(
    sandbox: Sandbox,
) -> None:
    """The server then sees at once that a reply has begun and that nothing more comes over the line."""
    (server,) = own_children()

    async def run() -> list[Reply]:
        requests = {"turn": "shared", "keep": 4}, {"torn": 2.0}
        neighbour, torn = (asyncio.create_task(sandbox.run(request)) for request in requests)
        await asyncio.sleep(1)  # both have begun
        server.suspend()
        await asyncio.sleep(2)
        server.resume()
        return [await torn, await neighbour]

    assert [reply["kind"] for reply in asyncio.run(run())] == ["crashed", "ok"]


def test_a_cap_is_no_longer_than_the_time_for_the_request(sandbox: Sandbox) -> None:
    kept, waiter = together(sandbox, {"turn": "exclusive", "keep": 600, "limit": 1.0}, {"turn": "exclusive"})
    assert (kept["kind"], waiter["kind"]) == ("timeout", "ok")


def test_cancelled_requests_leave_no_open_files(sandbox: Sandbox) -> None:
    async def cancelled() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                await sandbox.run({"turn": "exclusive", "keep": 600})

    def open_files() -> int:
        assert sandbox._connection is not None
        return len(os.listdir(f"/proc/{sandbox._connection._process.pid}/fd"))

    asyncio.run(cancelled())
    assert together(sandbox, {})[0]["kind"] == "ok"
    before = open_files()
    for _ in range(5):
        asyncio.run(cancelled())
    assert together(sandbox, {})[0]["kind"] == "ok"
    assert open_files() <= before


# ------------------------------------------------------------------------------------------- own time


def _spin() -> None:
    os.setsid()  # the kernel shares a processor among sessions first
    while True:
        pass


@contextlib.contextmanager
def one_busy_processor(loops: int) -> Iterator[None]:
    """Everything that is started inside runs on one processor, beside so many busy loops."""
    if not counted():
        pytest.skip("this kernel does not count how long a process waits for a processor")
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    context = multiprocessing.get_context("fork")
    others = [context.Process(target=_spin, daemon=True) for _ in range(loops)]
    try:
        for process in others:
            process.start()
        yield
    finally:
        for process in others:
            process.kill()
            process.join()
        os.sched_setaffinity(0, before)


def test_a_process_that_waits_for_a_processor_does_not_age() -> None:
    with one_busy_processor(3):
        clock = OwnTime.of()
        start, wall = clock.mark(), time.monotonic()
        end = time.process_time() + 0.5
        while time.process_time() < end:
            pass
        own, took = clock.since(start), time.monotonic() - wall
        clock.close()
    assert 0.45 < own < 0.7 * took


def test_a_process_that_sleeps_does() -> None:
    clock = OwnTime.of()
    start = clock.mark()
    time.sleep(0.5)
    assert clock.since(start) > 0.4
    clock.close()


def test_a_child_without_a_processor_is_not_late(sandbox: Sandbox) -> None:
    """It needs one second of a processor, may run for two, and has to share with four others."""
    with one_busy_processor(4):
        sandbox.close()
        with Sandbox("turn_worker", workers=1, timeout=2, memory_mb=512) as starved:
            reply = starved.run_sync({"work": 1.0})
    assert reply["kind"] == "ok", reply
    assert reply["seconds"] > 2, "by the clock it took longer than it may run"
    assert 0.9 < reply["cpu"] < 2.5


def test_a_child_that_works_for_too_long_is_late_on_a_busy_processor_too(sandbox: Sandbox) -> None:
    with one_busy_processor(3):
        sandbox.close()
        with Sandbox("turn_worker", workers=1, timeout=1, memory_mb=512) as starved:
            reply = starved.run_sync({"work": 600})
    assert reply["kind"] == "timeout", reply
    assert reply["cpu"] < 5
