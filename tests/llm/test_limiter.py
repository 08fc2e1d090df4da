from __future__ import annotations

import asyncio
import time

from kernelmill.llm.limiter import Limiter


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


def test_retry_after_holds_back_every_new_call_even_with_nothing_in_flight() -> None:
    async def run() -> float:
        limiter = Limiter(4)
        limiter.pushed_back(time.monotonic(), 0.3)
        started = time.monotonic()
        await asyncio.gather(*(call(limiter, 0) for _ in range(6)))
        return time.monotonic() - started

    assert 0.3 <= asyncio.run(run()) < 1.5


def test_a_cancelled_waiter_does_not_take_the_slot_of_another() -> None:
    async def run() -> None:
        limiter = Limiter(1)
        await limiter.acquire()
        waiters = [asyncio.create_task(call(limiter, 0)) for _ in range(3)]
        await asyncio.sleep(0.01)
        waiters[0].cancel()
        limiter.release()
        waiters[1].cancel()
        await asyncio.wait_for(waiters[2], 1)
        await asyncio.gather(*waiters, return_exceptions=True)
        assert limiter.in_flight == 0

    asyncio.run(run())
