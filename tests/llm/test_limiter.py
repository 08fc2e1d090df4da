from __future__ import annotations

import asyncio
import random
import time
from types import SimpleNamespace
from typing import Any

import pytest

from kernelmill.llm import limiter as under_test
from kernelmill.llm.limiter import Limiter


class Clock(asyncio.SelectorEventLoop):
    """A loop of its own time: where all are waiting, the next one's moment has come."""

    def __init__(self) -> None:
        self.now = 1000.0
        super().__init__()
        look = self._selector.select  # type: ignore[attr-defined]

        def select(timeout: float | None) -> Any:
            assert timeout is not None, "all are waiting, and nothing will wake them"
            self.now += timeout
            return look(0)

        self._selector.select = select  # type: ignore[attr-defined]

    def time(self) -> float:
        return self.now


async def call(limiter: Limiter, seconds: float) -> None:
    await limiter.acquire()
    await asyncio.sleep(seconds)
    limiter.release()


def test_never_more_in_flight_than_the_limit() -> None:
    async def run() -> int:
        limiter = Limiter(8)
        most = 0

        async def one() -> None:
            nonlocal most
            await limiter.acquire()
            most = max(most, limiter.in_flight)
            await asyncio.sleep(0.002)
            limiter.release()

        await asyncio.gather(*(one() for _ in range(200)))
        assert limiter.in_flight == 0
        return most

    assert asyncio.run(run()) == 8


def test_push_back_halves_once_for_calls_that_were_in_flight_together() -> None:
    async def run() -> list[float]:
        limiter = Limiter(64)
        started = [await limiter.acquire() for _ in range(64)]
        for at in started:
            limiter.pushed_back(at, None)
        first = limiter.limit
        later = time.monotonic() + 0.001
        await asyncio.sleep(0.002)
        limiter.pushed_back(later, None)
        return [first, limiter.limit]

    assert asyncio.run(run()) == [32, 16]


def test_the_limit_recovers_fully_after_push_back() -> None:
    async def run() -> float:
        limiter = Limiter(100)
        for _ in range(10):
            limiter.pushed_back(time.monotonic(), None)
            await asyncio.sleep(0.001)
        assert limiter.limit == 1
        for _ in range(3000):
            limiter.succeeded()
        return limiter.limit

    assert asyncio.run(run()) == 100


def test_retry_after_holds_back_every_new_call_even_with_nothing_in_flight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with asyncio.Runner(loop_factory=Clock) as runner:
        clock = runner.get_loop()
        monkeypatch.setattr(under_test, "time", SimpleNamespace(monotonic=clock.time))
        moments: list[float] = []

        async def one(limiter: Limiter) -> None:
            moments.append(await limiter.acquire())
            await asyncio.sleep(1)
            limiter.release()

        async def run() -> None:
            limiter = Limiter(4)
            limiter.pushed_back(clock.time(), 300)
            await asyncio.gather(*(one(limiter) for _ in range(6)))

        started = clock.time()
        runner.run(run())
    waited = [moment - started for moment in moments]
    assert len(waited) == 6
    assert 300 <= min(waited) < 301
    assert max(waited) < 310, "they come one after the other, and nobody is forgotten"


def test_a_cancelled_waiter_does_not_take_the_slot_of_another() -> None:
    async def run() -> None:
        limiter = Limiter(1)
        await limiter.acquire()
        waiters = [asyncio.create_task(call(limiter, 0)) for _ in range(3)]
        await asyncio.sleep(0.01)
        waiters[0].cancel()
        limiter.release()
        waiters[1].cancel()
        await asyncio.wait_for(waiters[2], 240)
        await asyncio.gather(*waiters, return_exceptions=True)
        assert limiter.in_flight == 0

    asyncio.run(run())


class Server:
    """A server in the loop's own time, with limits, asked as the engine asks. Counts what it refuses."""

    def __init__(
        self,
        clock: Clock,
        latency: float,
        at_once: int = 10**9,
        per_second: int = 10**9,
        refuse: float = 0.0,
        retry_after: float | None = 1.0,
    ) -> None:
        self.clock, self.latency, self.retry_after = clock, latency, retry_after
        self.at_once, self.per_second, self.refuse = at_once, per_second, refuse
        self.serving = self.calls = 0
        self.begun: list[float] = []
        self.refused: list[int] = []
        """The numbers of the calls that were."""
        self.chance = random.Random(1)

    def takes(self) -> bool:
        second = [moment for moment in self.begun[-self.per_second :] if self.clock.now - moment < 1.0]
        over = self.serving >= self.at_once or len(second) >= self.per_second
        self.calls += 1
        if over or self.chance.random() < self.refuse:
            self.refused.append(self.calls)
            return False
        self.begun.append(self.clock.now)
        return True

    async def ask(self, limiter: Limiter) -> None:
        again = False
        while True:
            started = await limiter.acquire(first=again)
            again = True
            await asyncio.sleep(0.001)
            if self.takes():
                self.serving += 1
                await asyncio.sleep(self.latency)
                self.serving -= 1
                limiter.succeeded()
                limiter.release()
                return
            limiter.pushed_back(started, self.retry_after)
            limiter.release()
            await asyncio.sleep(max(self.retry_after or 0.0, 0.3))


def asked(monkeypatch: pytest.MonkeyPatch, calls: int, **server: Any) -> tuple[Server, float]:
    """The server after so many calls, 64 at once, and the seconds they took."""
    with asyncio.Runner(loop_factory=Clock) as runner:
        clock = runner.get_loop()
        assert isinstance(clock, Clock)
        monkeypatch.setattr(under_test, "time", SimpleNamespace(monotonic=clock.time))
        one, limiter, started = Server(clock, **server), Limiter(64), clock.now

        async def run() -> None:
            await asyncio.gather(*(one.ask(limiter) for _ in range(calls)))

        runner.run(run())
        return one, clock.now - started


def test_a_429_with_retry_after_holds_back_nobody_else_unless_the_whole_allowance_is_used_up() -> None:
    async def run() -> None:
        limiter = Limiter(64)
        started = [await limiter.acquire() for _ in range(64)]
        limiter.pushed_back(started[0], 60)
        assert limiter.held_back == 0
        assert limiter.limit == 63
        limiter.pushed_back(started[1], 60, exhausted=True)
        assert limiter.held_back > 50

    asyncio.run(run())


def test_as_many_refusals_in_a_row_as_calls_in_flight_hold_everybody_back() -> None:
    async def run() -> None:
        limiter = Limiter(8)
        started = [await limiter.acquire() for _ in range(8)]
        for at in started[:7]:
            limiter.pushed_back(at, 60)
        assert limiter.held_back == 0
        limiter.pushed_back(started[7], 60)
        assert limiter.held_back > 50

    asyncio.run(run())


def test_refusals_at_random_hardly_slow_the_run_down(monkeypatch: pytest.MonkeyPatch) -> None:
    _, seconds = asked(monkeypatch, 2000, latency=0.1, refuse=0.03)
    assert seconds < 2 * 2000 * 0.1 / 64


@pytest.mark.parametrize("retry_after", [1.0, None])
@pytest.mark.parametrize(
    ("limits", "ideal"),
    [
        ({"latency": 0.1, "at_once": 1}, 600 * 0.1),
        ({"latency": 0.1, "at_once": 8}, 600 * 0.1 / 8),
        ({"latency": 0.1, "at_once": 40}, 600 * 0.1 / 40),
        ({"latency": 0.02, "per_second": 10}, 600 / 10),
        ({"latency": 0.1, "per_second": 50}, 600 / 50),
        ({"latency": 1.0, "per_second": 30}, 600 / 30),
    ],
)
def test_a_limit_of_the_server_is_used_and_few_calls_are_over_it(
    monkeypatch: pytest.MonkeyPatch, limits: dict[str, Any], ideal: float, retry_after: float | None
) -> None:
    server, seconds = asked(monkeypatch, 600, retry_after=retry_after, **limits)
    # A run begins with as many calls as the user allows; from there on the limit is known.
    later = [number for number in server.refused if number > 128]
    assert len(later) < 0.1 * server.calls
    assert seconds < 2 * ideal + 3
