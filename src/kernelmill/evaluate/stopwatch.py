"""Timing on a GPU: the candidate in its process and the reference in the judge's, in turn, until the ratio is known.

The judge's own clock looks from outside: the time that a block of calls took for it must fit what the events in the
candidate's process say. A tenth of the timed results is compared with what is right.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from kernelmill.evaluate.channel import pack, unpack
from kernelmill.evaluate.clock import Clock, Regime
from kernelmill.evaluate.probes import Trial
from kernelmill.evaluate.ratio import Ratio, ratio
from kernelmill.evaluate.session import Returned, Session
from kernelmill.evaluate.values import Call, flatten

SETS = 8
LEAST_PAIRS, MOST_PAIRS = 4, 40
GOOD_ENOUGH = 0.01
BLOCK_US = 4000.0
LEAST_CALLS, MOST_CALLS = 8, 50
WARM_UP_S = 0.05
SEND_SHARE = 0.1
WALL_SLACK, WALL_SLACK_US = 1.5, 60.0


def measure(trial: Trial, clock: Clock, budget: float) -> dict[str, Any]:
    """Times of both sides by regime. The caller holds the lock."""
    session = trial.session
    sets = _sets(trial)
    model = session.model
    calls = [functools.partial(_call, model, one) for one in sets]
    answers = [session.expected(one, 0) for one in sets]
    carrier = session.outgoing()
    packed = [[pack(one.args, carrier), pack(one.kwargs, carrier)] for one in sets]
    session._ask("sets", 30.0, {"sets": packed})
    found: dict[str, Any] = {"sets": len(sets)}
    regimes: tuple[Regime, ...] = ("latency", "device")
    for regime in regimes:
        found[regime] = _regime(trial, session, clock, calls, answers, regime, budget)
    found["wall_us"] = _wall(session, clock, calls, len(sets))
    found["bytes"] = _moved(session, sets[0], answers[0])
    return found


def _sets(trial: Trial) -> list[Call]:
    size = sum(t.numel() * t.element_size() for t in trial.session.reference.inputs(0).tensors()) or 1
    room = trial.session.outgoing().size  # type: ignore[attr-defined]
    count = max(1, min(SETS, int(room // (size + 4096))))
    return [trial.session.reference.inputs(trial.seed()) for _ in range(count)]


def _call(model: Any, call: Call) -> Any:
    with torch.no_grad():
        return model(*call.args, **call.kwargs)


def _regime(
    trial: Trial,
    session: Session,
    clock: Clock,
    calls: Sequence[Callable[[], Any]],
    answers: list[Any],
    regime: Regime,
    budget: float,
) -> dict[str, Any]:
    warm = clock.block([calls[i % len(calls)] for i in range(LEAST_CALLS)], regime)
    mine = _block(session, regime, [trial.random.randrange(len(calls)) for _ in range(LEAST_CALLS)], [])[0]
    until = time.monotonic() + WARM_UP_S
    while time.monotonic() < until:  # clocks rise under load
        clock.block([calls[i % len(calls)] for i in range(LEAST_CALLS)], regime)
    size = max(
        LEAST_CALLS, min(MOST_CALLS, int(BLOCK_US / max(statistics.median(warm), statistics.median(mine), 1)))
    )
    eager: list[list[float]] = []
    ours: list[list[float]] = []
    result: Ratio | None = None
    end = time.monotonic() + budget
    while len(eager) < MOST_PAIRS:
        order = [trial.random.randrange(len(calls)) for _ in range(size)]
        send = trial.random.sample(range(size), max(1, int(SEND_SHARE * size)))[:4]
        if len(eager) % 2:
            times, results = _block(session, regime, order, send)
            base = clock.block([calls[place] for place in order], regime)
        else:
            base = clock.block([calls[place] for place in order], regime)
            times, results = _block(session, regime, order, send)
        eager.append(base)
        ours.append(times)
        _check(trial, session, order, results, answers)
        if len(eager) >= LEAST_PAIRS:
            result = ratio(eager, ours)
            if result.half_width < GOOD_ENOUGH or time.monotonic() > end:
                break
    assert result is not None
    flat = sorted(t for block in ours for t in block)
    medians = sorted(statistics.median(block) for block in ours)
    return {
        "median_us": statistics.median(flat),
        "ci": [medians[0], medians[-1]],
        "n": len(flat),
        "eager_us": statistics.median(t for block in eager for t in block),
        "speedup": result.value,
        "low": result.low,
        "high": result.high,
        "pairs": len(eager),
    }


def _block(
    session: Session, regime: Regime, order: list[int], send: list[int]
) -> tuple[list[float], list[Any]]:
    said, _ = session._ask("time", 60.0, {"regime": regime, "order": order, "send": send})
    times = [float(t) for t in said["times"]]
    if len(times) != len(order) or any(not t > 0 for t in times):
        raise ValueError("the times are not those of the calls asked for")
    results = [(int(n), flatten(unpack(packed, session.incoming([])))) for n, packed in said["results"]]
    for _, outputs in results:
        outputs.leaves = [leaf.clone() for leaf in outputs.leaves]
    return times, results


def _check(trial: Trial, session: Session, order: list[int], results: list[Any], answers: list[Any]) -> None:
    """Timed results must be right, too, and as they are when the call returns."""
    for number, outputs in results:
        found = session.compare(Returned(outputs, "", {}, 0.0), answers[order[number]])
        if not found.ok:
            trial.record.check("digest", "fail", found.detail)
            trial.hack("D1.late_or_stale_when_timed", detail=found.detail)
            return


def _wall(session: Session, clock: Clock, calls: Sequence[Callable[[], Any]], sets: int) -> dict[str, float]:
    """Microseconds a call by the judge's clock: the slope from n to 3n calls, less what the loop itself takes."""
    n = 20

    def slope(block: Callable[[int], Any]) -> float:
        spans = []
        for _ in range(3):
            marks = [time.perf_counter()]
            for count in (n, 3 * n):
                block(count)
                marks.append(time.perf_counter())
            spans.append((marks[2] - marks[1] - (marks[1] - marks[0])) / (2 * n) * 1e6)
        return statistics.median(spans)

    eager_events: list[float] = []

    def eager(count: int) -> None:
        eager_events[:] = clock.block([calls[i % len(calls)] for i in range(count)], "latency")

    ours_events: list[float] = []

    def ours(count: int) -> None:
        ours_events[:] = _block(session, "latency", [i % sets for i in range(count)], [])[0]

    loop = slope(eager) - statistics.median(eager_events)
    wall = slope(ours) - loop
    return {"candidate": wall, "events": statistics.median(ours_events), "loop": loop}


def _moved(session: Session, call: Call, answer: Any) -> int:
    tensors = [*call.tensors(), *session.model.state_dict().values(), *answer.eager.leaves]
    return sum(t.numel() * t.element_size() for t in tensors)


def measure_baselines(
    model: Any, calls: list[Call], modes: list[str], exclusive: Callable[[], AbstractContextManager[None]]
) -> dict[str, Any]:
    """How many times as fast as eager each way of compiling the reference is, by regime."""
    found: dict[str, Any] = {}
    clock = Clock()
    eager = [functools.partial(_call, model, call) for call in calls]
    for mode in modes:
        start = time.monotonic()
        compiled = torch.compile(model, mode=None if mode == "compile" else "max-autotune-no-cudagraphs")
        fast = [functools.partial(_call, compiled, call) for call in calls]
        for call in fast:
            call()
        torch.cuda.synchronize()
        entry: dict[str, Any] = {"seconds": time.monotonic() - start}
        with exclusive():
            for regime in ("latency", "device"):
                blocks: tuple[list[list[float]], list[list[float]]] = ([], [])
                for number in range(2 + LEAST_PAIRS):
                    pair = [
                        clock.block([one[i % 4] for i in range(LEAST_CALLS)], regime) for one in (eager, fast)
                    ]
                    if number >= 2:
                        blocks[0].append(pair[0])
                        blocks[1].append(pair[1])
                entry[regime] = ratio(*blocks).value
        found[mode] = entry
    return found
