"""The clock on a GPU that is not there: time passes by hand, so that what is measured is known exactly."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")

from kernelmill.evaluate.gpu import clock as module
from kernelmill.evaluate.gpu.clock import MOST_SPIN_S, Clock
from kernelmill.evaluate.gpu.plan import EXCLUSIVE_S, LEAST_CALLS, MOST_CALLS, Plan, TooSlowToTime

MHZ = 1500.0
LAUNCH_S = 5e-6
"""What Python takes to queue anything."""


class FakeGpu:
    """A host that queues work, and a device that does it in order. Both have a clock in seconds."""

    def __init__(self) -> None:
        self.now, self.free_at = 0.0, 0.0
        self.spins: list[float] = []

    def queue(self, seconds: float, host: float = LAUNCH_S) -> None:
        self.now += host
        self.free_at = max(self.now, self.free_at) + seconds

    def wait(self) -> None:
        self.now = max(self.now, self.free_at)

    def sleep(self, cycles: int) -> None:
        self.spins.append(cycles / (MHZ * 1e6))
        self.queue(self.spins[-1])

    def torch(self) -> Any:
        gpu = self

        class Event:
            at = 0.0

            def __init__(self, enable_timing: bool = False) -> None:
                pass

            def record(self) -> None:
                gpu.now += LAUNCH_S
                self.at = max(gpu.now, gpu.free_at)

            def query(self) -> bool:
                return self.at <= gpu.now

            def elapsed_time(self, end: Event) -> float:
                return 1e3 * (end.at - self.at)

        cuda = SimpleNamespace(
            Event=Event,
            _sleep=gpu.sleep,
            synchronize=gpu.wait,
            current_device=lambda: 0,
            get_device_properties=lambda device: SimpleNamespace(L2_cache_size=1 << 20),
        )
        flush = SimpleNamespace(zero_=lambda: gpu.queue(20e-6))
        return SimpleNamespace(cuda=cuda, uint8=None, empty=lambda *size, **rest: flush)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    return installed(monkeypatch)


def installed(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    fake = FakeGpu()
    monkeypatch.setattr(module, "torch", fake.torch())
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: fake.now))
    return fake


def call(gpu: FakeGpu, kernel: float, python: float, waits: bool = False) -> Callable[[], Any]:
    """A call that takes Python and the GPU so long, in seconds."""

    def run() -> None:
        gpu.queue(kernel, python)
        if waits:
            gpu.wait()
            gpu.now += LAUNCH_S

    return run


@pytest.mark.parametrize("python", [20e-6, 200e-6, 2e-3])
def test_the_device_regime_gives_the_kernels_own_time_however_slow_python_is(
    gpu: FakeGpu, python: float
) -> None:
    clock, one = Clock(), call(gpu, 50e-6, python)
    assert not clock.waits(one)
    times = clock.block([one] * 12, "device")
    assert times == pytest.approx([50.0] * 12)


def test_the_latency_regime_gives_what_a_caller_sees(gpu: FakeGpu) -> None:
    clock = Clock()
    times = clock.block([call(gpu, 50e-6, 200e-6)] * 5, "latency")
    assert min(times) > 150, "three times what the kernel takes"


@pytest.mark.parametrize("python", [20e-6, 200e-6, 2e-3])
def test_who_waits_for_the_gpu_is_known_from_the_first_call(gpu: FakeGpu, python: float) -> None:
    clock = Clock()
    assert clock.waits(call(gpu, 50e-6, python, waits=True))
    assert sum(gpu.spins) < 0.1


def test_who_takes_longer_to_be_queued_than_a_spin_may_last_is_timed_as_a_caller_sees_it(
    gpu: FakeGpu,
) -> None:
    assert Clock().waits(call(gpu, 50e-6, 0.03))


def test_no_spin_is_longer_than_its_ceiling_and_none_grows_from_block_to_block(gpu: FakeGpu) -> None:
    """Code that waits runs every spin dry: it used to be doubled each time, and kept."""
    clock, waiting = Clock(), call(gpu, 50e-6, 100e-6, waits=True)
    lengths = []
    for _ in range(20):
        gpu.spins.clear()
        clock.block([waiting] * 12, "device")
        lengths.append(max(gpu.spins))
    assert max(lengths) <= 1.01 * MOST_SPIN_S
    assert lengths[-1] <= 1.01 * lengths[0]


def test_one_pause_of_pythons_does_not_make_a_call_one_that_waits(gpu: FakeGpu) -> None:
    clock, calls = Clock(), iter(range(100))

    def hiccup() -> None:
        gpu.queue(50e-6, 0.01 if next(calls) == 3 else 50e-6)

    assert not clock.waits(hiccup)


def test_a_block_that_python_was_too_slow_for_is_tried_again(gpu: FakeGpu) -> None:
    clock, calls, seen = Clock(), iter(range(1000)), []
    assert not clock.waits(call(gpu, 50e-6, 50e-6))

    def slow_at_first() -> None:
        gpu.queue(50e-6, 2e-3 if next(calls) < 5 else 50e-6)

    times = clock.block([slow_at_first] * 5, "device", lambda number, result: seen.append(number))
    assert times == pytest.approx([50.0] * 5)
    assert seen == [*range(5), *range(5)]


def test_a_block_of_calls_that_are_slow_to_queue_is_done_in_parts(gpu: FakeGpu) -> None:
    clock, one, seen = Clock(), call(gpu, 50e-6, 4e-3), []
    assert not clock.waits(one)
    gpu.spins.clear()
    times = clock.block([one] * 12, "device", lambda number, result: seen.append(number))
    assert times == pytest.approx([50.0] * 12)
    assert seen == list(range(12))
    assert len(gpu.spins) > 1
    assert max(gpu.spins) <= 1.01 * MOST_SPIN_S


# ------------------------------------------------------------------------------------------- how much is timed


@given(st.floats(0.5, 1e8))
def test_a_plan_fits_into_a_turn_or_there_is_none(slowest_us: float) -> None:
    try:
        plan = Plan.of(slowest_us)
    except TooSlowToTime:
        assert slowest_us > 0.4e6, "a call of 0.4 s can be timed"
        return
    assert 2 * plan.calls * (plan.pairs + plan.replays) * slowest_us / 1e6 <= 0.8 * EXCLUSIVE_S
    assert 1 <= plan.calls <= MOST_CALLS
    assert plan.pairs >= 3


@given(st.floats(0.5, 1000.0))
def test_short_calls_are_timed_in_full_blocks(slowest_us: float) -> None:
    plan = Plan.of(slowest_us)
    assert plan.calls >= LEAST_CALLS
    assert plan.pairs == 8
