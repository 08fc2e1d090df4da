"""The client: a reward, or masked, or an error; never a number that nobody gave."""

from __future__ import annotations

import asyncio
import re
import socket

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelmill.base.answers import NoAnswer, code_of
from kernelmill.errors import ConfigError
from kernelmill.evaluate.static.examine import MAX_CHARS
from kernelmill.rl import client as under_test
from kernelmill.rl.client import (
    MAX_CODE,
    Ask,
    AsyncRewardClient,
    ClientOptions,
    Reward,
    RewardClient,
    RewardRefused,
    RewardUnavailable,
    _shortened,
)
from tests.rl.stub import Answer, Body, Stub, verdict

FULL: Answer = (429, {"error": "the queue is full"}, {"Retry-After": "1"})
STARTING: Answer = (503, {"error": "the service is starting"}, {"Retry-After": "0"})
BUG: Answer = (500, {"error": "internal error"})
TROUBLE: Answer = (200, verdict(0.0, "inconclusive", "INFRA_ERROR", error="a worker was killed"))
NOT_OURS: Answer = (200, "<html>a proxy's page</html>")


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "_FIRST_WAIT", 0.01)
    monkeypatch.setattr(under_test, "_LONGEST_WAIT", 0.05)


class Clock:
    """The client's own: it goes on by what the client waits, and by what a test adds."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.waits: list[float] = []

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(under_test, "time", made)
    monkeypatch.setattr(under_test, "_sleep", made.sleep)
    return made


def grade(url: str, candidate: str = "0.5", **options: object) -> Reward:
    async def once() -> Reward:
        async with AsyncRewardClient(ClientOptions(url, **options)) as client:  # type: ignore[arg-type]
            return await client.grade("a reference", candidate)

    return asyncio.run(once())


def test_a_verdict_gives_its_reward_its_words_and_the_whole_record() -> None:
    with Stub((200, verdict(-1.0, "hack", "HACK", checks=[]))) as stub:
        found = grade(stub.url, token="secret", reward="default")
    assert (found.reward, found.verdict, found.status, found.feedback) == (-1.0, "hack", "HACK", "said")
    assert (found.masked, found.attempts, found.record["checks"]) == (False, 1, [])
    assert stub.bodies == [
        {"reference": "a reference", "candidate": "0.5", "reward": "default", "entry_point": None}
    ]
    assert stub.headers[0]["Authorization"] == "Bearer secret"
    assert "secret" not in repr(ClientOptions(token="secret"))


def test_what_nobody_can_judge_is_masked_and_no_error() -> None:
    with Stub() as stub:
        found = grade(stub.url, "?")
    assert (found.reward, found.masked, found.why) == (None, True, "inconclusive (UNSUPPORTED)")


def test_a_correct_candidate_that_was_not_timed_is_masked_where_the_reward_needs_a_time() -> None:
    with Stub((200, verdict(None))) as stub:
        found = grade(stub.url, reward="speedup")
    assert (found.masked, found.verdict, found.why) == (True, "correct", "correct, but nothing was timed")


ODD: list[Answer] = [
    (200, verdict(float("nan"))),
    (200, verdict(True)),
    (200, verdict(10**400)),
    (200, {**verdict(), "status": None}),
    (200, "[" * 100_000),
    (200, b"\xff\xfe"),
    (503, "", {"Retry-After": "\u00b2"}),
]


@pytest.mark.parametrize("bad", [STARTING, BUG, TROUBLE, NOT_OURS, "reset", *ODD])
def test_whatever_goes_wrong_on_the_way_is_asked_again(bad: Answer) -> None:
    with Stub(bad, bad) as stub:
        found = grade(stub.url)
    assert (found.reward, found.attempts, len(stub.bodies)) == (0.5, 3, 3)


def test_a_full_service_is_asked_again_when_it_said_and_not_before(clock: Clock) -> None:
    with Stub(FULL) as stub:
        assert grade(stub.url).reward == 0.5
    (wait,) = clock.waits
    assert 1.0 <= wait <= 1.25


@pytest.mark.parametrize("bad", [BUG, TROUBLE, NOT_OURS, "reset"])
def test_after_the_retries_it_raises_or_masks_and_never_gives_a_number(bad: Answer) -> None:
    with Stub(always=lambda body: bad) as stub:
        with pytest.raises(RewardUnavailable, match="after 3 attempts"):
            grade(stub.url, retries=2)
        found = grade(stub.url, retries=2, mask=True)
    assert (found.reward, found.verdict, found.attempts) == (None, "inconclusive", 3)
    assert len(stub.bodies) == 6


@pytest.mark.parametrize("busy", [FULL, STARTING])
def test_a_service_that_stays_busy_is_given_up_when_patience_is_over(clock: Clock, busy: Answer) -> None:
    def answer(body: Body) -> Answer:
        clock.now += 400
        return busy

    with Stub(always=answer) as stub, pytest.raises(RewardUnavailable, match="after 3 attempts"):
        grade(stub.url, retries=0, patience=1000)
    assert len(stub.bodies) == 3


def test_a_wait_that_would_pass_the_patience_is_not_begun(clock: Clock) -> None:
    with Stub(FULL) as stub, pytest.raises(RewardUnavailable, match=r"is past the 0\.5 s"):
        grade(stub.url, retries=0, patience=0.5)
    assert clock.waits == []


def test_nobody_listening_is_waited_for_and_given_up_when_patience_is_over(clock: Clock) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # so that nobody else can listen there
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(RewardUnavailable):
            grade(url, retries=0, patience=60)
        assert 50 < sum(clock.waits) < 60
        found = grade(url, retries=0, patience=60, mask=True)
    assert found.masked
    assert found.attempts > 1


def test_an_answer_that_does_not_come_is_asked_again_and_then_given_up() -> None:
    with Stub("hang") as stub:
        found = grade(stub.url, timeout=1, retries=100)
    assert found.reward == 0.5
    assert found.attempts == len(stub.bodies) >= 2
    with Stub("hang") as stub, pytest.raises(RewardUnavailable, match="nothing after"):
        grade(stub.url, patience=0.3)


@pytest.mark.parametrize("status", [401, 404, 413, 422])
def test_a_refusal_is_raised_at_once_also_where_faults_are_masked(status: int) -> None:
    with Stub((status, {"error": "no"})) as stub, pytest.raises(RewardRefused, match=str(status)):
        grade(stub.url, mask=True)
    assert len(stub.bodies) == 1


def test_no_more_requests_are_open_than_allowed_and_answers_keep_their_order() -> None:
    async def many(url: str) -> list[Reward]:
        async with AsyncRewardClient(ClientOptions(url, in_flight=3)) as client:
            return await client.grade_many(Ask("r", str(n)) for n in range(20))

    with Stub() as stub:
        stub.latency = 0.02
        found = asyncio.run(many(stub.url))
    assert [one.reward for one in found] == [float(n) for n in range(20)]
    assert stub.most_open == 3


def test_the_blocking_client_gives_the_same_from_any_thread_and_inside_a_running_loop() -> None:
    with Stub() as stub, RewardClient(ClientOptions(stub.url)) as client:
        assert client.grade("r", "0.25").reward == 0.25
        assert [one.reward for one in client.grade_many([Ask("r", "1"), Ask("r", "?")])] == [1.0, None]

        async def inside() -> Reward:
            assert client.grade("r", "2").reward == 2.0
            return await asyncio.wrap_future(client.submit(Ask("r", "3")))

        assert asyncio.run(inside()).reward == 3.0
    client.close()


def test_thoughts_without_end_are_left_at_home_and_a_candidate_without_end_is_sent_as_a_shorter_one() -> None:
    thoughts = f"<think>{'so ' * MAX_CODE}</think><answer>0.75</answer>"
    endless = ["x" * (MAX_CODE + 1), f"<answer>{'1' * (MAX_CODE + 1)}</answer>", "<think>" + "so " * MAX_CODE]
    with Stub(always=lambda body: (200, verdict())) as stub:
        for text in [thoughts, *endless]:
            assert not grade(stub.url, text).masked
    sent = [body["candidate"] for body in stub.bodies]
    assert sent[0] == "0.75"
    assert len(sent) == 4
    assert max(len(text) for text in sent) <= MAX_CODE


PARTS = [
    "<think>",
    "</think>",
    "<answer>",
    "</answer>",
    "BEGIN_PYTHON",
    "END_PYTHON",
    "```python\n",
    "\n```\n",
]
PARTS += ["import a", "import b\n", "x = '</think>'", "word", "\n", "y" * 40_000]


def _said(text: str) -> tuple[str, str]:
    """What the evaluator makes of a completion before it runs anything: its code, or why there is none."""
    try:
        code = code_of(text)
    except NoAnswer as error:
        return "no answer", re.sub(r"^\d+ different", "different", str(error))
    return ("code", code) if len(code) <= MAX_CHARS else ("too long", "")


@given(st.lists(st.sampled_from(PARTS), max_size=12), st.integers(0, 12))
def test_a_completion_that_is_too_long_is_sent_as_one_that_is_read_alike(parts: list[str], at: int) -> None:
    text = "".join([*parts[:at], "long " * (MAX_CODE // 4), *parts[at:]])
    short = _shortened(text)
    assert len(short) <= MAX_CODE
    assert _said(short)[0] == _said(text)[0]
    if _said(text)[0] == "code":
        assert _said(short) == _said(text)


def test_half_of_a_surrogate_pair_travels() -> None:
    with Stub((200, verdict())) as stub:
        grade(stub.url, "\ud800")
    assert stub.bodies[0]["candidate"] == "\ud800"


@pytest.mark.parametrize(
    "wrong", [{"url": "localhost:1"}, {"timeout": 0}, {"patience": 0}, {"retries": -1}, {"in_flight": 0}]
)
def test_options_that_cannot_work_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        ClientOptions(**wrong)  # type: ignore[arg-type]


@given(st.lists(st.sampled_from([STARTING, BUG, TROUBLE, NOT_OURS, "reset"]), max_size=8))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_mishaps_come_first_the_result_is_the_reward_or_nothing(script: list[Answer]) -> None:
    with Stub(*script) as stub:
        found = grade(stub.url, retries=5, mask=True)
    # Only what went wrong with the request itself is counted.
    too_many = sum(one is not STARTING for one in script) > 5
    assert found.reward == (None if too_many else 0.5)
