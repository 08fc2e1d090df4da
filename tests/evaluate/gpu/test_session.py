"""A session on a GPU that is not there: which steps take a turn, of which kind, and what a tuner may take. The other side is played."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from kernelmill.evaluate.gpu.session import GpuHold, GpuSession
from kernelmill.evaluate.judge.channel import Bytes, Channel, Closed, pack
from kernelmill.evaluate.judge.record import TOO_SLOW, Limits, Record, Stop
from kernelmill.evaluate.task.values import Call
from kernelmill.sandbox import inside
from kernelmill.sandbox.own_time import OwnTime

Answer = Callable[[dict[str, Any]], dict[str, Any]]


class Server(inside.ServerChannel):
    """Grants every turn, and notes them."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[str] = []

    def acquire_gpu(self, exclusive: bool, cap: float) -> None:
        self.noted.append("exclusive" if exclusive else "shared")

    def release_gpu(self) -> None:
        self.noted.append("leaves")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    made = Server()
    monkeypatch.setattr(inside, "server", made)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(synchronize=lambda: None))
    return made


@contextmanager
def session(answer: Answer, exclusive: bool = False, compiling: bool = False) -> Iterator[GpuSession]:
    mine, theirs = socket.socketpair()

    def serve() -> None:
        channel = Channel(theirs)
        while True:
            try:
                request, _ = channel.receive()
                nonce = {"nonce": request["nonce"]}
                if compiling:
                    channel.send(nonce | {"pause": True})
                    channel.send(nonce | {"pause": False})
                    channel.receive()
                channel.send(nonce | {"seconds": 0.1} | answer(request))
            except Closed:
                return

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        made = GpuSession(mine, Record(), Limits(), OwnTime(()))
        made.hold, made.exclusive = GpuHold(exclusive), exclusive
        made.down = made.up = cast(Any, SimpleNamespace(empty=Bytes, size=0))
        yield made
    finally:
        mine.shutdown(socket.SHUT_RDWR)
        thread.join()
        mine.close()
        theirs.close()


def nothing(request: dict[str, Any]) -> dict[str, Any]:
    return {}


def test_a_call_has_a_turn_beside_others_and_loading_needs_none(server: Server) -> None:
    with session(nothing) as one:
        one.ask("load", 10, {})
        assert server.noted == []
        one.ask("call", 10, {})
        one.ask("call", 10, {"compile_only": True})
    assert server.noted == ["shared", "leaves"]


def test_who_is_suspected_of_never_ending_has_the_gpu_alone_in_every_step(server: Server) -> None:
    with session(nothing, exclusive=True) as one:
        for do in ("load", "build", "call"):
            one.ask(do, 10, {})
    assert server.noted == ["exclusive", "leaves"] * 3


def test_inside_a_turn_no_other_is_taken(server: Server) -> None:
    with session(nothing) as one, one.computing(exclusive=True):
        one.ask("call", 10, {})
        with one.hold():
            pass
    assert server.noted == ["exclusive", "leaves"]


def test_while_a_candidate_compiles_its_turn_goes_to_others(server: Server) -> None:
    with session(nothing, compiling=True) as one:
        one.ask("call", 10, {})
    assert server.noted == ["shared", "leaves", "shared", "leaves"]


def test_a_turn_is_given_back_where_what_is_inside_fails(server: Server) -> None:
    with session(nothing) as one:
        with pytest.raises(ValueError, match="inside"), one.computing():
            raise ValueError("inside")
        one.ask("call", 10, {})
    assert server.noted == ["shared", "leaves"] * 2


def late(request: dict[str, Any]) -> dict[str, Any]:
    """Its own alarm rang."""
    error = {"type": "TooSlow", "message": "", "trace": [], "slow": True, "progress": ""}
    return {"error": error | {"unsupported": None, "memory": False}}


def test_a_turn_in_which_something_does_not_end_is_left_to_who_ends_it(server: Server) -> None:
    with session(late, exclusive=True) as one:
        with pytest.raises(Stop) as stop, one.computing():
            one.ask("call", 10, {})
        with one.hold():  # what is tidied up afterwards asks for no other
            pass
    assert stop.value.status == "TIMEOUT"
    assert server.noted == ["exclusive"]


def test_a_late_call_beside_others_is_never_put_up_with(server: Server) -> None:
    """It would be held against the candidate. Compiling fails again in the first call."""
    with session(late) as one:
        assert "error" in one.ask("call", 10, {"compile_only": True}, tolerate=True)[0]
        with pytest.raises(Stop) as stop:
            one.ask("call", 10, {}, tolerate=True)
        assert stop.value.status == "TIMEOUT"
        assert one.record.retry_exclusively
    with session(late, exclusive=True) as one:
        assert "error" in one.ask("call", 10, {}, tolerate=True)[0]


def test_nobody_waits_for_a_report_that_would_not_count(server: Server) -> None:
    with session(nothing) as shared, session(nothing, exclusive=True) as exclusive:
        assert shared.grace == 0
        assert exclusive.grace > 0


EMPTY = Call([], {})


def tuner(configurations: int, slow: bool = False) -> Answer:
    """Says how many there are to choose from, and then chooses."""

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request.get("compile_only"):
            return {"observed": {"configurations": configurations}, "output": pack(None, Bytes())}
        assert request["seconds"] <= 3 + 0.5 * 128
        return late(request) if slow else {"output": pack(None, Bytes()), "observed": {}}

    return answer


def test_a_tuner_chooses_with_nobody_else_on_the_gpu(server: Server) -> None:
    with session(tuner(5)) as one:
        one.call_s = 3.0
        one.compile(EMPTY, 1)
        assert one.call_s == 3.0
    assert server.noted == ["exclusive", "leaves"]


def test_where_there_is_nothing_to_choose_nobody_is_alone(server: Server) -> None:
    with session(tuner(0)) as one:
        one.compile(EMPTY, 1)
    assert server.noted == []


def test_a_candidate_does_not_say_how_long_it_may_be_alone(server: Server) -> None:
    with session(tuner(10**6)) as one:
        one.call_s = 3.0
        one.compile(EMPTY, 1)  # `tuner` looks at what it is given


@pytest.mark.parametrize("exclusive", [True, False])
def test_a_tuner_that_takes_too_long_is_tried_again_alone_and_then_too_slow_but_not_wrong(
    server: Server, exclusive: bool
) -> None:
    with session(tuner(5, slow=True), exclusive=exclusive) as one:
        one.call_s = 3.0
        with pytest.raises(Stop) as stop:
            one.compile(EMPTY, 1)
        assert one.call_s == 3.0
        assert one.record.retry_exclusively is not exclusive
    assert stop.value.status == ("UNSUPPORTED" if exclusive else "TIMEOUT")
    assert stop.value.error.startswith(TOO_SLOW) is exclusive
