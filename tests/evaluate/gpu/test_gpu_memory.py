"""Shares of a GPU's memory: exclusive use is exclusive, shares add up to at most all, what ran out of memory is retried exclusively."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelmill.evaluate.gpu.gpu_judges import GpuJudges
from kernelmill.evaluate.gpu.gpu_memory import ALL, MemoryShares, memory_was_short, share_of
from kernelmill.sandbox.pool import Pool


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 0.05, 0.3, 0.5, ALL]), st.integers(0, 3), st.booleans()),
        min_size=1,
        max_size=25,
    ),
    st.integers(0, 99),
)
def test_who_is_alone_is_alone_and_everybody_gets_in(users: list[tuple[float, int, bool]], seed: int) -> None:
    async def run() -> tuple[int, int]:
        room, inside, done = MemoryShares(), [], 0
        dice = random.Random(seed)

        async def use(share: float, wait: int) -> None:
            nonlocal done
            for _ in range(dice.randrange(3)):
                await asyncio.sleep(0)
            async with room.taking(share):
                inside.append(share)
                try:
                    assert sum(inside) <= ALL
                    assert len(inside) == 1 or ALL not in inside
                    for _ in range(wait):
                        await asyncio.sleep(0)
                finally:
                    inside.remove(share)
            done += 1

        tasks = [asyncio.create_task(use(share, wait)) for share, wait, _ in users]
        await asyncio.sleep(0)
        for task, (_, _, stopped) in zip(tasks, users, strict=True):
            if stopped:
                task.cancel()
        await ended(tasks)
        finished = sum(not task.cancelled() for task in tasks)
        assert inside == []
        await ended([asyncio.create_task(use(ALL, 0))])  # and it is free afterwards
        return done - 1, finished

    done, finished = asyncio.run(run())
    assert done == finished


async def ended(tasks: list[asyncio.Task[None]]) -> None:
    """Wait for them by rounds of the loop and not by the clock: nobody here waits for anything but a turn."""
    for _ in range(10_000):
        if all(task.done() for task in tasks):
            return
        await asyncio.sleep(0)
    raise AssertionError("somebody does not get in")


def work(name: str, size: int | None = None) -> Any:
    """As much of a candidate on its way as a gpu_judges asks about."""
    task = {"ref_sha": name} | ({} if size is None else {"own_bytes": size})
    return SimpleNamespace(environment=lambda models: {}, verdict=SimpleNamespace(task=task))


class Crowded:
    """A judge that needs the whole GPU; a stand-in, for there is none here."""

    def __init__(self) -> None:
        self.running, self.runs = 0, []

    async def run(self, request: dict[str, Any], limit: float | None = None) -> dict[str, Any]:
        self.running += 1
        crowded = self.running > 1
        await asyncio.sleep(0.01)
        crowded |= self.running > 1
        self.running -= 1
        self.runs.append((request["reference"], crowded))
        error = "cudaMalloc: CUDA error 2" if crowded and request["reference"].startswith("large") else ""
        return {
            "kind": "ok",
            "result": {"status": "INFRA_ERROR" if error else "PASSED", "error": error},
            "message": "",
        }


def pool_of(judge: Crowded) -> Pool:
    return Pool(lambda environment: cast(Any, judge))


def test_what_had_no_room_beside_others_is_judged_again_alone_and_the_next_of_its_kind_at_once() -> None:
    gpu_judges = cast(Any, GpuJudges.__new__(GpuJudges))
    judge = Crowded()
    gpu_judges._shares, gpu_judges._needs_exclusive, gpu_judges._servers = MemoryShares(), {}, pool_of(judge)

    async def run(names: list[str]) -> list[Any]:
        return await asyncio.gather(*(gpu_judges._run({"reference": name}, work(name)) for name in names))

    replies = asyncio.run(run(["small1", "large1", "small2", "large2"]))
    assert [reply["result"]["status"] for reply in replies] == ["PASSED"] * 4
    assert set(gpu_judges._needs_exclusive) == {"large1", "large2"}
    gpu_judges._shares, judge.runs = MemoryShares(), []
    asyncio.run(run(["large1", "small1", "large1"]))
    assert [crowded for name, crowded in judge.runs if name == "large1"] == [False, False]


def test_what_is_known_to_be_large_is_alone_from_the_beginning_and_small_ones_are_together() -> None:
    gpu_judges = cast(Any, GpuJudges.__new__(GpuJudges))
    judge = Crowded()
    gpu_judges._shares, gpu_judges._needs_exclusive, gpu_judges._servers, gpu_judges._memory = (
        MemoryShares(),
        {},
        pool_of(judge),
        140 << 30,
    )
    sizes = {"large1": 12 << 30, "small1": 1 << 20, "large2": 17 << 30, "small2": 1 << 20}

    async def run() -> list[Any]:
        works = [(name, work(name, size)) for name, size in sizes.items()]
        return await asyncio.gather(*(gpu_judges._run({"reference": name}, one) for name, one in works))

    asyncio.run(run())
    assert [name for name, crowded in judge.runs if crowded] == []
    assert len(judge.runs) == 4, "none was tried in vain"
    judge.runs, sizes = [], {"small1": 1 << 20, "small2": 1 << 20}
    gpu_judges._shares = MemoryShares()
    asyncio.run(run())
    assert [crowded for _, crowded in judge.runs] == [True, True]


def test_a_share_grows_with_the_task_up_to_all_of_it() -> None:
    shares = [share_of(size << 20, 140 << 30) for size in (1, 100, 1000, 9000, 10000, 17000)]
    assert shares == sorted(shares)
    assert shares[3] < 0.6
    assert shares[4:] == [ALL, ALL]


def test_a_task_that_has_no_room_alone_either_is_inconclusive_for_good() -> None:
    class Full(Crowded):
        async def run(self, request: dict[str, Any], limit: float | None = None) -> dict[str, Any]:
            return {
                "kind": "ok",
                "result": {"status": "INFRA_ERROR", "error": "cudaMalloc: CUDA error 2"},
                "message": "",
            }

    gpu_judges = cast(Any, GpuJudges.__new__(GpuJudges))
    gpu_judges._shares, gpu_judges._needs_exclusive, gpu_judges._servers = MemoryShares(), {}, pool_of(Full())
    reply = asyncio.run(gpu_judges._run({"reference": "huge"}, work("huge")))
    assert reply["result"]["status"] == "UNSUPPORTED"
    assert reply["result"]["error"].startswith("this task does not fit on this GPU")


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: cudaMalloc: CUDA error 2 (gpu_session.py:36)",
        "AcceleratorError: CUDA error: out of memory Search for `cudaErrorMemoryAllocation",
        "RuntimeError: NVML_SUCCESS == DriverAPI::get()->nvmlInit_v2_() INTERNAL ASSERT FAILED",
        "the reference does not fit: CUDA out of memory. Tried to allocate 8.00 GiB",
    ],
)
def test_the_ways_in_which_a_full_gpu_is_told(text: str) -> None:
    assert memory_was_short(text)
    assert not memory_was_short("CUDA error: an illegal memory access was encountered")


def test_a_reference_that_a_full_gpu_refused_is_not_at_fault() -> None:
    from kernelmill.evaluate.task.reference import _of_the_machine

    assert _of_the_machine(RuntimeError("CUDA error: out of memory"))
    assert not _of_the_machine(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
