"""Which regime the reward goes by, on a GPU that is not there (see test_clock)."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from kernelmill.evaluate.gpu import stopwatch as module
from kernelmill.evaluate.gpu.clock import Clock
from kernelmill.evaluate.judge.record import Record
from kernelmill.evaluate.judge.tolerance import Comparison
from tests.evaluate.gpu.test_clock import FakeGpu, call, installed


def chosen(monkeypatch: pytest.MonkeyPatch, kernel: float, python: float, waits: bool = False) -> str:
    """The regime for a reference and a candidate whose calls take the GPU and Python so long, in seconds."""
    return str(measured(monkeypatch, kernel, python, waits)._found["regime"])


class Process:
    """A process with a clock of its own that is asked for the times of a call."""

    exclusive = False

    def __init__(self, call: Any) -> None:
        self._call, self._clock = call, Clock()

    def ask(
        self, do: str, seconds: float, fields: dict[str, Any], **options: Any
    ) -> tuple[dict[str, Any], list[Any]]:
        if do == "waits":
            return {"waits": self._clock.waits(self._call)}, []
        times = self._clock.block([self._call] * len(fields["order"]), fields["regime"])
        return {"times": times}, []


def measured(
    monkeypatch: pytest.MonkeyPatch,
    kernel: float,
    python: float,
    waits: bool = False,
    program: float | None = None,
) -> module.Stopwatch:
    gpu: FakeGpu = installed(monkeypatch)
    monkeypatch.setattr(module, "bandwidth", lambda: 1e12)
    one = call(gpu, kernel, python, waits)
    watch = module.Stopwatch.__new__(module.Stopwatch)
    watch.__dict__.update(
        _trial=SimpleNamespace(random=random.Random(1)),
        _session=Process(one),
        _program=None if program is None else Process(call(gpu, program, 50e-6)),
        _calls=[one],
        _clock=Clock(),
        _kept=4,
        _most_kept=0,
        _blocks={},
        _sent=[],
    )
    watch.measure(0.0)
    return watch


@pytest.mark.parametrize("python", [10e-6, 60e-6, 300e-6, 2e-3])
def test_a_busy_machine_does_not_change_the_regime_of_a_short_kernel(
    monkeypatch: pytest.MonkeyPatch, python: float
) -> None:
    assert chosen(monkeypatch, 20e-6, python) == "device"


@pytest.mark.parametrize("python", [10e-6, 60e-6, 300e-6])
def test_a_long_kernel_is_timed_as_a_caller_sees_it(monkeypatch: pytest.MonkeyPatch, python: float) -> None:
    assert chosen(monkeypatch, 400e-6, python) == "latency"


def test_who_waits_is_timed_as_a_caller_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen(monkeypatch, 20e-6, 10e-6, waits=True) == "latency"


def test_both_regimes_are_timed_and_only_one_of_them_again_by_the_judges_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The blocks that the judge's clock watches are the latency's; a second set would hold the GPU for longer."""
    asked: list[tuple[str, int]] = []
    ours = module.Stopwatch._ours

    def counted(
        self: Any, regime: Any, order: list[int], send: int | None = None, by: Any = None
    ) -> list[float]:
        asked.append((regime, len(order)))
        return ours(self, regime, order, None, by)

    monkeypatch.setattr(module.Stopwatch, "_ours", counted)
    watch = measured(monkeypatch, 20e-6, 10e-6)
    latency, device = (watch._blocks[regime] for regime in ("latency", "device"))
    assert [len(block) for block in latency[0]] == [len(block) for block in latency[1]]
    assert len(latency[1]) >= 4
    assert len(device[1]) >= 8
    beside = [size for regime, size in asked if regime == "latency" and size > 2]
    assert beside == [len(block) for block in latency[1]]
    assert module._summary(*latency)["median_us"] >= 20 * 0.99


@pytest.mark.parametrize("kernel", [20e-6, 400e-6])
def test_the_kernels_of_the_program_are_timed_beside_the_candidates(
    monkeypatch: pytest.MonkeyPatch, kernel: float
) -> None:
    replay = measured(monkeypatch, kernel, 10e-6, program=2 * kernel)._found["replay"]
    assert replay["own_us"] == pytest.approx(kernel * 1e6, rel=0.02)
    assert replay["program_us"] == pytest.approx(2 * kernel * 1e6, rel=0.02)


def test_without_a_program_nothing_is_timed_beside_the_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    assert measured(monkeypatch, 20e-6, 10e-6)._found["replay"] == {}
    assert measured(monkeypatch, 20e-6, 10e-6, waits=True, program=20e-6)._found["replay"] == {}


def test_the_kernels_own_time_is_the_programs_and_what_a_caller_waits_for_the_candidates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blocks = measured(monkeypatch, 20e-6, 10e-6, program=30e-6)._blocks
    median = {regime: module._summary(*both)["median_us"] for regime, both in blocks.items()}
    assert median["device"] == pytest.approx(30, rel=0.02)
    assert median["latency"] < 27


@pytest.mark.parametrize("mutates", [False, True])
def test_timed_results_are_compared_unless_each_call_changes_its_inputs(mutates: bool) -> None:
    """What a call returns that works in place depends on how often it was timed before."""
    watch = module.Stopwatch.__new__(module.Stopwatch)
    record, compared = Record(), []
    facts = SimpleNamespace(mutates_inputs=mutates)

    def comparison(call: Any, returned: Any, seed: int, answer: Any) -> Comparison:
        compared.append(returned)
        return Comparison(True)

    watch.__dict__.update(
        _trial=SimpleNamespace(facts=facts, record=record),
        _session=SimpleNamespace(comparison=comparison),
        _sets=[None],
        _answers=[None],
        _sent=[(0, None)],
    )
    watch._compare()
    assert len(compared) == (not mutates)
    assert [(check.name, check.result) for check in record.checks] == [
        ("digest", "skip" if mutates else "pass")
    ]
