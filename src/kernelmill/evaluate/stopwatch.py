"""Timing on a GPU: the candidate in its process and the reference in the judge's, in turn, until the ratio is known.

The judge's own clock looks from outside: the time that a block of calls took for it must fit what the events in the
candidate's process say. Some of the timed results are compared with what is right.
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
from kernelmill.evaluate.ratio import pair_ratios, ratio, spread
from kernelmill.evaluate.session import Returned, Session
from kernelmill.evaluate.trial import Trial
from kernelmill.evaluate.values import Call, Outputs, flatten

SETS = 8
LEAST_PAIRS, MOST_PAIRS = 6, 40
GOOD_ENOUGH = 0.005
BLOCK_US = 1500.0
LEAST_CALLS, MOST_CALLS = 6, 25
SEND_SHARE = 0.1
_MOST_SENT, _KEPT_RESULTS = 2, 12
_REGIMES: tuple[Regime, ...] = ("latency", "device")


class Stopwatch:
    """Times one candidate against its reference. Make it before the lock is held, `measure` with it, `results` after."""

    def __init__(self, trial: Trial) -> None:
        self._trial, self._session, self._clock = trial, trial.session, Clock()
        sets = _sets(trial)
        self._calls = [functools.partial(_call, trial.session.model, one) for one in sets]
        self._answers = [trial.session.expected(one, 0) for one in sets]
        carrier = trial.session.outgoing()
        packed = [[pack(one.args, carrier), pack(one.kwargs, carrier)] for one in sets]
        trial.session.ask("sets", 30.0, {"sets": packed})
        self._bytes = _moved(trial.session, sets[0], self._answers[0].eager)
        self._blocks: dict[str, tuple[list[list[float]], list[list[float]]]] = {}
        self._sent: list[tuple[int, Outputs]] = []
        self._wall: dict[str, float] = {}
        for regime in _REGIMES:  # what is made at a first call is made now
            self._pair(regime, LEAST_CALLS)

    def measure(self, budget: float) -> None:
        """Nothing else runs on the GPU meanwhile."""
        for regime in _REGIMES:
            self._regime(regime, budget)
        self._wall = _wall(self._session, self._clock, self._calls)

    def results(self) -> dict[str, Any]:
        """Times by regime; timed results that are wrong are a hack."""
        found: dict[str, Any] = {"sets": len(self._calls), "wall_us": self._wall, "bytes": self._bytes}
        for regime, (eager, ours) in self._blocks.items():
            result, flat = ratio(eager, ours), [t for block in ours for t in block]
            medians = sorted(statistics.median(block) for block in ours)
            found[regime] = {
                "median_us": statistics.median(flat),
                "ci": [medians[0], medians[-1]],
                "n": len(flat),
                "eager_us": statistics.median(t for block in eager for t in block),
                "speedup": result.value,
                "low": result.low,
                "high": result.high,
                "pairs": len(eager),
            }
        for place, outputs in self._sent:
            compared = self._session.compare(Returned(outputs, "", {}, 0.0), self._answers[place])
            if not compared.ok:
                self._trial.record.check("digest", "fail", compared.detail)
                self._trial.hack("D1.late_or_stale_when_timed", detail=compared.detail)
                break
        return found

    def _regime(self, regime: Regime, budget: float) -> None:
        self._pair(regime, LEAST_CALLS)  # clocks rise under load
        eager, ours = self._pair(regime, LEAST_CALLS)
        slowest = max(statistics.median(eager), statistics.median(ours), 1.0)
        size = max(LEAST_CALLS, min(MOST_CALLS, int(BLOCK_US / slowest)))
        blocks: tuple[list[list[float]], list[list[float]]] = ([], [])
        end = time.monotonic() + budget
        while len(blocks[0]) < MOST_PAIRS:
            eager, ours = self._pair(regime, size, candidate_first=bool(len(blocks[0]) % 2), check=True)
            blocks[0].append(eager)
            blocks[1].append(ours)
            if len(blocks[0]) < LEAST_PAIRS:
                continue
            if spread(pair_ratios(*blocks)) < GOOD_ENOUGH or time.monotonic() > end:
                break
        self._blocks[regime] = blocks

    def _pair(
        self, regime: Regime, size: int, candidate_first: bool = False, check: bool = False
    ) -> tuple[list[float], list[float]]:
        """A block of eager's and one of the candidate's, on the same inputs in the same order."""
        dice = self._trial.random
        order = [dice.randrange(len(self._calls)) for _ in range(size)]
        send = dice.sample(range(size), max(1, int(SEND_SHARE * size)))[:_MOST_SENT] if check else []
        calls = [self._calls[place] for place in order]
        eager = [] if candidate_first else self._clock.block(calls, regime)
        ours, sent = _block(self._session, regime, order, send)
        if candidate_first:
            eager = self._clock.block(calls, regime)
        if len(self._sent) < _KEPT_RESULTS:
            self._sent += [(order[number], outputs) for number, outputs in sent]
        return eager, ours


def _sets(trial: Trial) -> list[Call]:
    size = sum(t.numel() * t.element_size() for t in trial.session.reference.inputs(0).tensors()) or 1
    room = trial.session.outgoing().size  # type: ignore[attr-defined]
    count = max(1, min(SETS, int(room // (size + 4096))))
    return [trial.session.reference.inputs(trial.seed()) for _ in range(count)]


def _call(model: Any, call: Call) -> Any:
    with torch.no_grad():
        return model(*call.args, **call.kwargs)


def _block(
    session: Session, regime: Regime, order: list[int], send: list[int]
) -> tuple[list[float], list[tuple[int, Outputs]]]:
    """One block of the candidate's calls, and the results asked for."""
    said, _ = session.ask("time", 60.0, {"regime": regime, "order": order, "send": send})
    times = [float(t) for t in said["times"]]
    if len(times) != len(order) or any(not t > 0 for t in times):
        raise ValueError("the times are not those of the calls asked for")
    results = [(int(n), flatten(unpack(packed, session.incoming([])))) for n, packed in said["results"]]
    for _, outputs in results:
        outputs.leaves = [leaf.clone() for leaf in outputs.leaves]
    return times, results


def _wall(session: Session, clock: Clock, calls: Sequence[Callable[[], Any]]) -> dict[str, float]:
    """Microseconds a call by the judge's clock: the slope from n to 3n calls, less what the loop itself takes."""
    n = 8
    events: dict[str, list[float]] = {}

    def eager(order: list[int]) -> None:
        events["eager"] = clock.block([calls[place] for place in order], "latency")

    def ours(order: list[int]) -> None:
        events["candidate"] = _block(session, "latency", order, [])[0]

    def slope(block: Callable[[list[int]], None]) -> float:
        spans = []
        for _ in range(2):
            marks = [time.perf_counter()]
            for count in (n, 3 * n):
                block([i % len(calls) for i in range(count)])
                marks.append(time.perf_counter())
            spans.append((marks[2] - marks[1] - (marks[1] - marks[0])) / (2 * n) * 1e6)
        return min(spans)

    loop = slope(eager) - statistics.median(events["eager"])
    wall = slope(ours) - loop
    return {"candidate": wall, "events": statistics.median(events["candidate"]), "loop": loop}


def _moved(session: Session, call: Call, outputs: Outputs) -> int:
    tensors = [*call.tensors(), *session.model.state_dict().values(), *outputs.leaves]
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
