from __future__ import annotations

import asyncio
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
