"""Time limits: what counts, what does not, and when a time-out is a verdict. No GPU: the other side is played."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("torch")

from kernelmill.evaluate.evaluation import Evaluation
from kernelmill.evaluate.gpu.gpu_judges import GpuJudges
from kernelmill.evaluate.gpu.gpu_memory import MemoryShares
from kernelmill.evaluate.judge.channel import Channel, Closed
from kernelmill.evaluate.judge.record import TOO_SLOW, Limits, Record, Stop, record_failure
from kernelmill.evaluate.judge.session import Session
from kernelmill.evaluate.options import Options, Pair
from kernelmill.evaluate.progress import STALLED_AFTER, Now, Progress, holders, waited_for
from kernelmill.evaluate.verdict import BAD_REFERENCE, Verdict, value_of
from kernelmill.sandbox import OVERDUE, Doing, Reply
from kernelmill.sandbox.alarm import TooSlow, too_slow
from kernelmill.sandbox.own_time import Mark, OwnTime
from kernelmill.sandbox.pool import Pool
from kernelmill.sandbox.reply import make_reply


class Hand(OwnTime):
    """A process's own time, set by hand: nothing here depends on how busy this machine is."""

    def __init__(self) -> None:
        super().__init__(())
        self.time = 0.0

    def mark(self) -> Mark:
        return Mark(self.time, 0.0, 0.0, 0.0)

    def since(self, start: Mark) -> float:
        return self.time - start.wall


Answer = Callable[[Channel, dict[str, Any], Hand], None]


def silent(channel: Channel, request: dict[str, Any], clock: Hand) -> None:
    """Works, and never answers."""
    clock.time += 1000


@contextmanager
def candidate(
    answer: Answer, limits: Limits | None = None, kind: type[Session] = Session
) -> Iterator[Session]:
    """A session with a process that `answer` plays."""
    mine, theirs = socket.socketpair()
    clock = Hand()

    def serve() -> None:
        channel = Channel(theirs)
        while True:
            try:
                request, _ = channel.receive()
                answer(channel, request, clock)
            except Closed:
                return

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield kind(mine, Record(), limits or Limits(), clock)
    finally:
        mine.shutdown(socket.SHUT_RDWR)
        thread.join()
        mine.close()
        theirs.close()


@pytest.fixture(autouse=True)
def nobody_paused() -> None:
    PAUSED.clear()


def stopped(session: Session, do: str = "call", seconds: float = 10) -> Stop:
    with pytest.raises(Stop) as stop:
        session.ask(do, seconds, {})
    return stop.value


@pytest.mark.parametrize(
    ("situation", "status"),
    [
        ({}, "TIMEOUT"),
        ({"own_size": False}, "UNSUPPORTED"),
        ({"enough_s": 20}, "UNSUPPORTED"),
        ({"enough_s": 10}, "TIMEOUT"),
    ],
)
def test_a_time_out_is_a_verdict_only_at_the_tasks_own_size_and_well_above_what_it_takes(
    situation: dict[str, Any], status: str
) -> None:
    with candidate(silent) as session:
        for name, value in situation.items():
            setattr(session, name, value)
        stop = stopped(session)
    assert stop.status == status
    assert value_of(stop.status) == ("incorrect" if status == "TIMEOUT" else "inconclusive")
    assert stop.error.startswith(TOO_SLOW) == (status == "UNSUPPORTED")


def test_who_does_not_end_beside_others_is_to_be_judged_retry_exclusively() -> None:
    with candidate(silent) as session:
        session.exclusive = False
        assert stopped(session).status == "TIMEOUT"
        assert session.record.retry_exclusively


def test_a_module_that_cannot_be_loaded_in_time_is_late_at_any_size() -> None:
    with candidate(silent) as session:
        session.own_size = False
        assert stopped(session, "load").status == "TIMEOUT"


def test_an_error_that_comes_of_a_time_out_is_one() -> None:
    def cut_off() -> None:
        try:
            raise TooSlow
        finally:
            raise PermissionError("what was started cannot be ended")

    with pytest.raises(PermissionError) as error:
        cut_off()
    assert isinstance(too_slow(error.value), TooSlow)
    own = ValueError()
    own.__context__ = own
    assert too_slow(own) is None


def late_answer(seconds: float) -> Answer:
    def answer(channel: Channel, request: dict[str, Any], clock: Hand) -> None:
        clock.time += seconds
        channel.send({"nonce": request["nonce"]})

    return answer


def test_a_process_that_had_no_processor_has_all_of_its_time() -> None:
    """The clock on the wall goes on for longer than its limit, and its own time does not."""

    def starved(channel: Channel, request: dict[str, Any], clock: Hand) -> None:
        time.sleep(0.3)
        late_answer(0.05)(channel, request, clock)

    with candidate(starved) as session:
        session.ask("call", 0.1, {})
        assert session.used == pytest.approx(0.05)


def test_who_has_used_up_its_time_is_too_slow_and_not_wrong() -> None:
    with candidate(late_answer(20), Limits(total_s=30)) as session:
        session.ask("call", 100, {})
        session.ask("call", 100, {})  # who has begun may end
        stop = stopped(session, seconds=100)
        session.ask("time", 100, {}, counts=False)  # who has passed is timed all the same
    assert stop.status == "UNSUPPORTED"
    assert stop.error.startswith(TOO_SLOW)


def compiling(seconds: float, then: float = 0.0) -> Answer:
    """Says that it compiles for so long, and then works."""

    def answer(channel: Channel, request: dict[str, Any], clock: Hand) -> None:
        nonce = {"nonce": request["nonce"]}
        channel.send(nonce | {"pause": True})
        assert PAUSED.wait(240)
        PAUSED.clear()
        clock.time += seconds
        channel.send(nonce | {"pause": False})
        assert channel.receive()[0]["nonce"] == request["nonce"]
        clock.time += then
        channel.send(nonce | {"done": True})

    return answer


PAUSED = threading.Event()
"""The judge has looked at the clock, since it was told that something is compiled."""


class Compiles(Session):
    compiles = True

    def interrupt(self) -> None:
        PAUSED.set()


class WithTurns(Compiles):
    """Notes when it gives its turn back and takes it again, for which it has to wait."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.noted: list[str] = []

    def interrupt(self) -> None:
        super().interrupt()
        self.noted.append("gives back")

    def resume(self) -> None:
        cast(Hand, self._clock).time += 500
        self.noted.append("takes again")


def test_compiling_and_waiting_to_go_on_are_no_part_of_a_calls_time() -> None:
    with candidate(compiling(50, then=5), kind=WithTurns) as session:
        said, _ = session.ask("call", 10, {})
        assert said["done"]
        assert session.used == 5
        assert cast(WithTurns, session).noted == ["gives back", "takes again"]


def test_all_kernels_together_have_a_budget_for_being_compiled() -> None:
    with candidate(compiling(20), Limits(compile_total_s=30), Compiles) as session:
        session.ask("call", 10, {})
        stop = stopped(session)
    assert stop.status == "UNSUPPORTED"
    assert "compiled" in stop.error


def test_one_kernel_has_a_budget_of_its_own_and_many_have_more() -> None:
    with candidate(compiling(30), Limits(compile_s=50, compile_total_s=1000), Compiles) as session:
        for _ in range(3):
            session.ask("call", 10, {})

    def never_ends(channel: Channel, request: dict[str, Any], clock: Hand) -> None:
        channel.send({"nonce": request["nonce"], "pause": True})
        assert PAUSED.wait(240)
        clock.time += 60

    with candidate(never_ends, Limits(compile_s=50, compile_total_s=1000), Compiles) as session:
        assert stopped(session).status == "UNSUPPORTED"


def test_who_works_for_too_long_after_compiling_is_late() -> None:
    def answer(channel: Channel, request: dict[str, Any], clock: Hand) -> None:
        nonce = {"nonce": request["nonce"]}
        channel.send(nonce | {"pause": True})
        channel.send(nonce | {"pause": False})
        channel.receive()
        clock.time += 1000

    with candidate(answer, kind=Compiles) as session:
        assert stopped(session).status == "TIMEOUT"


def test_who_compiles_again_and_again_in_no_time_comes_to_an_end() -> None:
    def endless(channel: Channel, request: dict[str, Any], clock: Hand) -> None:
        nonce = {"nonce": request["nonce"]}
        while True:
            channel.send(nonce | {"pause": True})
            channel.send(nonce | {"pause": False})
            channel.receive()

    with candidate(endless, Limits(compile_total_s=20), Compiles) as session:
        assert stopped(session).status == "UNSUPPORTED"


def test_who_fails_while_it_compiles_says_so() -> None:
    def answer(channel: Channel, request: dict[str, Any], clock: Hand) -> None:
        channel.send({"nonce": request["nonce"], "pause": True})
        channel.send({"nonce": request["nonce"], "failed": "here"})

    with candidate(answer, kind=WithTurns) as session:
        said, _ = session.ask("call", 10, {})
        assert said["failed"] == "here"
        assert cast(WithTurns, session).noted == ["gives back", "takes again"]


def test_nobody_compiles_in_the_interpreter() -> None:
    def answer(channel: Channel, request: dict[str, Any], clock: Hand) -> None:
        channel.send({"nonce": request["nonce"], "pause": True})

    with candidate(answer) as session:
        said, _ = session.ask("call", 10, {})
        assert said["pause"], "it is taken for an answer: no more time for who says so"


def test_who_does_not_read_what_it_is_sent_is_late() -> None:
    mine, theirs = socket.socketpair()
    clock = Hand()
    with mine, theirs:
        session = Session(mine, Record(), Limits(), clock)
        asking = threading.Timer(0.3, lambda: setattr(clock, "time", 1000.0))
        asking.start()
        assert stopped_with(session, {"much": "x" * (4 << 20)}).status == "TIMEOUT"
        asking.join()


def stopped_with(session: Session, fields: dict[str, Any]) -> Stop:
    with pytest.raises(Stop) as stop:
        session.ask("call", 10, fields)
    return stop.value


@pytest.mark.parametrize(
    ("error", "status"),
    [(TOO_SLOW, "HACK"), ("no GPU", "HACK"), (f"{BAD_REFERENCE}: it fails", "UNSUPPORTED")],
)
def test_who_is_caught_gets_away_only_if_the_reference_cannot_be_run(error: str, status: str) -> None:
    record = Record()
    with record_failure(record):
        record.flag("E1.tampers", "hard")
        raise Stop("UNSUPPORTED", error)
    assert record.status == status


# ------------------------------------------------------------------------------------------- a gpu_judges


class Judges:
    """A GPU's judges, who answer by script and note what they are asked."""

    def __init__(self, *replies: Reply) -> None:
        self.replies, self.asked = list(replies), list[dict[str, Any]]()

    async def run(self, request: dict[str, Any], timeout: float | None = None) -> Reply:  # noqa: ASYNC109
        self.asked.append(request)
        return self.replies.pop(0)


def record(status: str, again: bool = False, times: dict[str, Any] | None = None) -> dict[str, Any]:
    found = Record(status=cast(Any, status), retry_exclusively=again)
    return dataclasses.asdict(found) | {"times": times or {}, "new_judge": False}


def judged(*replies: Reply) -> tuple[Evaluation, Judges]:
    gpu_judges = cast(Any, GpuJudges.__new__(GpuJudges))
    judges = Judges(*replies)
    gpu_judges._shares, gpu_judges._needs_exclusive, gpu_judges._memory, gpu_judges._failures = (
        MemoryShares(),
        {},
        1 << 30,
        0,
    )
    gpu_judges._servers = Pool(lambda environment: cast(Any, judges))
    work = Evaluation(Pair("x", "reference", "candidate"), Options(device="cpu"))
    asyncio.run(gpu_judges._asked({"do": "judge", "seed": 1}, work, 1))
    return work, judges


HEALTHY = make_reply("ok", result={"sum": 1000.0})


def test_who_timed_out_beside_others_is_judged_again_with_the_gpu_to_itself() -> None:
    shared = make_reply("ok", result=record("TIMEOUT", again=True))
    work, judges = judged(shared, make_reply("ok", result=record("PASSED")))
    assert work.verdict.verdict == "correct"
    assert [one.get("suspect") for one in judges.asked] == [None, "candidate"]


def test_who_does_not_end_there_either_is_incorrect_and_the_gpu_is_looked_at() -> None:
    shared = make_reply("ok", result=record("TIMEOUT", again=True))
    work, judges = judged(shared, make_reply("ok", result=record("TIMEOUT")), HEALTHY)
    assert (work.verdict.verdict, work.verdict.status) == ("incorrect", "TIMEOUT")
    assert judges.asked[-1] == {"do": "health"}


def test_who_was_found_out_before_it_was_late_is_not_judged_again() -> None:
    work, judges = judged(make_reply("ok", result=record("HACK", again=True)))
    assert (work.verdict.status, len(judges.asked)) == ("HACK", 1)


def test_a_judge_that_was_ended_convicts_nobody() -> None:
    work, _ = judged(make_reply("timeout", message="timed out after 300 s"), HEALTHY)
    assert (work.verdict.verdict, work.verdict.status) == ("inconclusive", "UNSUPPORTED")


def test_a_reference_that_kept_its_turn_beside_others_is_asked_retry_exclusively() -> None:
    late = make_reply("timeout", type=OVERDUE, message="held the GPU lock")
    work, judges = judged(late, make_reply("ok", result=record("PASSED")))
    assert work.verdict.verdict == "correct"
    assert [one.get("suspect") for one in judges.asked] == [None, "reference"]


def test_who_loses_its_turn_loses_the_times_and_not_the_verdict() -> None:
    cut = make_reply("ok", result=record("PASSED", times={"untimed": "its turn was ended"}), cut="overdue")
    work, _ = judged(cut)
    assert (work.verdict.verdict, work.verdict.perf) == ("correct", None)
    (check,) = [check for check in work.verdict.checks if check.name == "gpu:timing"]
    assert (check.result, check.detail) == ("skip", "its turn was ended")


# ------------------------------------------------------------------------------------------- what is seen of it


def doing(label: str, turn: Any, since: float, what: str = "timing") -> Doing:
    return Doing(label=label, doing=what, since=since, gpu_lock=turn, gpu_lock_since=since)


NOW = Now(
    [("a", "GPU 0", 10.0), ("b", "GPU 0", 40.0), ("c", "interpreter", 90.0)],
    {0: [doing("a", "exclusive", 20.0), doing("b", "waits", 50.0, "probes")], 1: []},
)


def test_it_is_said_who_has_the_gpu_and_since_when() -> None:
    assert holders(NOW, 100.0) == "GPU 0: a exclusive for 80.0 s (timing), 1 wait"
    assert holders(Now(gpus={0: [doing("a", "shared", 1.0)]}), 100.0) == "GPU 0: 1 at work"


def test_what_is_waited_for_is_said_of_the_longest_first() -> None:
    lines = waited_for(NOW, 100.0)
    assert lines == [
        "GPU 0: a exclusive for 80.0 s (timing), 1 wait",
        "a: GPU 0 for 1:30 (timing, exclusive)",
        "b: GPU 0 for 1:00 (probes, waits)",
        "c: interpreter for 0:10",
    ]


def test_a_batch_without_progress_says_what_it_waits_for(capsys: pytest.CaptureFixture[str]) -> None:
    clock = SimpleNamespace(time=0.0)
    progress = Progress(3, 0, lambda: NOW, clock=lambda: clock.time)
    progress.add(Verdict("z", "PASSED", "gpu"))
    clock.time = STALLED_AFTER - 1
    progress.show()
    assert "no verdict" not in capsys.readouterr().err
    clock.time = STALLED_AFTER
    progress.show()
    said = capsys.readouterr().err
    assert "no verdict for 2:00" in said
    assert "a: GPU 0" in said
    progress.show()
    assert "no verdict" not in capsys.readouterr().err, "it is said once, and again when as long has passed"
    clock.time = 2 * STALLED_AFTER
    progress.show()
    assert "no verdict for 4:00" in capsys.readouterr().err
