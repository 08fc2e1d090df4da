"""Time a candidate against the reference in the judge's process, alternating until the ratio is known.

What a caller waits for (the latency) is timed in the candidate's process. The kernels' own time (the device
regime) is timed in the process that runs the candidate's program, where none of its Python runs.

The judge's own clock is a check from outside: the time it saw for a block of calls must fit what the events
in the candidate's process say. Some of the timed results are compared with the correct ones. A block without
the candidate's launches shows how much of the time is not spent in its own kernels.

If either side waits for the GPU during a call, both are timed only in the latency regime.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Iterable
from typing import Any

import torch

from kernelmill.evaluate.gpu.clock import KEPT_RESULTS, Clock, Regime, bandwidth, l2_cache_bytes
from kernelmill.evaluate.gpu.plan import EXCLUSIVE_S, LAUNCHES_MATTER_BELOW_US, LEAST_CALLS, Plan
from kernelmill.evaluate.gpu.ratio import pair_ratios, ratio, spread
from kernelmill.evaluate.gpu.wall_clock import by_the_judge
from kernelmill.evaluate.judge.channel import pack, unpack
from kernelmill.evaluate.judge.comparing import Returned
from kernelmill.evaluate.judge.session import Session
from kernelmill.evaluate.judge.trial import Trial
from kernelmill.evaluate.task.values import Call, Outputs, flatten

SETS = 8
DEVICE_REGIME_BELOW_US = 100.0
"""If eager's kernels take less than this, launch overhead dominates what a caller sees, and the reward uses
the kernels' own time."""
MOST_PAIRS = 60
SECONDARY_REGIME_PAIRS = 6
"""Number of pairs in the device regime if the reward does not use it."""
TARGET_RATIO_SPREAD = 0.008
BETWEEN_PROCESSES = 0.012
"""Relative difference of a kernel from itself in another process, in 95 of 100 cases, however long it is
timed: its memory is at another address."""
WALL_S = 0.02
"""About how much time the judge's clock measures, in `FEW_FOR_THE_WALL` to `MOST_FOR_THE_WALL` calls."""
FEW_FOR_THE_WALL, MOST_FOR_THE_WALL = 3, 100
MIN_FRACTION_OF_MEMORY_TIME = 0.9
"""Fraction of the time it takes to move the task's bytes: a faster candidate has not moved them."""
_ASK_S = EXCLUSIVE_S / 2
"""Timeout for one block: the judge notices a slow block before the server ends its exclusive use."""
_MAX_CHECKED_RESULTS = 12
_ROOM = 4 << 30
"""Bytes that the inputs, answers and kept results of timing may take together, if there are several."""
_Blocks = tuple[list[list[float]], list[list[float]]]


class Stopwatch:
    """Times one candidate against its reference.

    Create it before exclusive use of the GPU, `measure` during it, call `results` after it.
    """

    def __init__(self, trial: Trial) -> None:
        self._trial, self._session = trial, trial.session
        self._sets = sets = _sets(trial)
        self._calls = [functools.partial(one.on, trial.session.model) for one in sets]
        self._answers = [trial.session.expected(one, 0) for one in sets]
        self._program = _ready(trial, sets[0])
        for session in (self._session, self._program):
            if session is not None:
                carrier = session.outgoing()
                packed = [[pack(one.args, carrier), pack(one.kwargs, carrier)] for one in sets]
                session.ask("sets", 30.0, {"sets": packed}, counts=False)
        self._moved = _bytes(trial, sets[0], self._answers[0].eager)
        taken = bytes_of(self._answers[0].eager.leaves)
        self._most_kept = most_kept(_MAX_CHECKED_RESULTS, taken)
        self._kept = most_kept(KEPT_RESULTS, taken)
        self._blocks: dict[Regime, _Blocks] = {}
        self._sent: list[tuple[int, Outputs]] = []
        self._found: dict[str, Any] = {}
        with trial.session.computing():
            self._clock = Clock(self._kept)
            # First calls and new memory take their time here, not during exclusive use.
            self._pair("latency", self._kept + 1)
            if self._program is not None:
                self._ours("latency", self._order(self._kept + 1), by=self._program)
            _reserve(self._answers[0].eager.leaves, self._most_kept)

    def measure(self, budget: float) -> None:
        """Measure during exclusive use of the GPU.

        `budget` is the seconds for the regime that the reward uses.
        """
        first = self._clock.mhz()
        eager, ours = (statistics.median(side) for side in self._pair("latency", 2))  # clocks rise under load
        slowest = max(eager, ours, 1.0)
        waits = self._waits() if slowest < LAUNCHES_MATTER_BELOW_US else []
        if waits or self._program_waits():
            self._program = None
        one_regime = bool(waits) or slowest >= LAUNCHES_MATTER_BELOW_US
        replay = self._replay(slowest)
        regimes: tuple[Regime, ...] = ("latency",) if one_regime else ("latency", "device")
        # Use the kernels' own time if it is known: launch overhead depends on how busy the machine is.
        eager, _ = (statistics.median(side) for side in self._pair(regimes[-1], Plan.of(slowest).calls))
        chosen = regimes[-1] if eager < DEVICE_REGIME_BELOW_US else "latency"
        if chosen == "latency":
            self._regime("latency", budget)
        wall = self._wall(slowest)
        if "device" in regimes:
            self._regime("device", budget if chosen == "device" else None)
        self._found = {
            "regime": chosen,
            "waits": waits,
            "wall_us": wall,
            "replay": replay,
            "others_us": None if waits else self._without_launches("latency" if one_regime else "device"),
            "bandwidth": bandwidth(),
            "mhz": [first, self._clock.mhz()],
        }

    def results(self) -> dict[str, Any]:
        """Times by regime, and what they say about the candidate. Wrong timed results count as a hack."""
        with self._session.computing():
            self._compare()
        found = self._found | {"sets": len(self._calls), "bytes": self._moved}
        for regime, blocks in self._blocks.items():
            found[regime] = _summary(*blocks)
        self._share(found)
        self._physics(found)
        return found

    # ------------------------------------------------------------------------------------------ measuring

    def _waits(self) -> list[str]:
        """Which sides wait for the GPU during a call. If any does, both are timed as a caller sees them."""
        said, _ = self._session.ask("waits", _ASK_S, {"kept": self._kept}, counts=False)
        found = {"candidate": said["waits"] is True, "reference": self._clock.waits(self._calls[0])}
        return [side for side, waits in found.items() if waits]

    def _regime(self, regime: Regime, budget: float | None) -> None:
        eager, ours = self._pair(regime, 2)
        plan = Plan.of(max(statistics.median(eager), statistics.median(ours), 1.0))
        blocks: _Blocks = ([], [])
        least = min(plan.pairs, SECONDARY_REGIME_PAIRS) if budget is None else plan.pairs
        end = time.monotonic() + (budget or 0.0)
        while len(blocks[0]) < MOST_PAIRS:
            eager, ours = self._pair(regime, plan.calls, candidate_first=bool(len(blocks[0]) % 2), check=True)
            blocks[0].append(eager)
            blocks[1].append(ours)
            if len(blocks[0]) < least:
                continue
            if time.monotonic() > end or spread(pair_ratios(*blocks)) < TARGET_RATIO_SPREAD:
                break
        self._blocks[regime] = blocks

    def _pair(
        self, regime: Regime, size: int, candidate_first: bool = False, check: bool = False
    ) -> tuple[list[float], list[float]]:
        """Time one block of eager's and one of the candidate's, on the same inputs in the same order."""
        order = self._order(size)
        send = self._trial.random.randrange(size) if check else None
        eager = [] if candidate_first else self._eager(regime, order)
        ours = self._ours(regime, order, send, self._timed_by(regime))
        return self._eager(regime, order) if candidate_first else eager, ours

    def _order(self, size: int) -> list[int]:
        """Choose the set of inputs for each call."""
        return [self._trial.random.randrange(len(self._calls)) for _ in range(size)]

    def _eager(self, regime: Regime, order: list[int]) -> list[float]:
        return self._clock.block([self._calls[index] for index in order], regime)

    def _timed_by(self, regime: Regime) -> Session:
        """The process whose calls are timed: the program's for the kernels' own time, if there is a program."""
        return self._session if regime == "latency" or self._program is None else self._program

    def _program_waits(self) -> bool:
        if self._program is None:
            return False
        self._program.exclusive = self._session.exclusive
        said, _ = self._program.ask("waits", _ASK_S, {"kept": self._kept}, counts=False)
        return said["waits"] is True

    def _replay(self, slowest_us: float) -> dict[str, float]:
        """Time the kernels of the candidate's program in the other process, and beside it in the candidate's own."""
        if self._program is None:
            return {}
        program: list[float] = []
        own: list[float] = []
        plan = Plan.of(slowest_us)
        for _ in range(plan.replays):
            order = self._order(plan.calls)
            for times, by in ((program, self._program), (own, self._session)):
                times += self._ours("device", order, self._trial.random.randrange(len(order)), by=by)
        return {"program_us": statistics.median(program), "own_us": statistics.median(own)}

    def _ours(
        self, regime: Regime, order: list[int], send: int | None = None, by: Session | None = None
    ) -> list[float]:
        """Time one block of calls, the candidate's unless `by` another. The result of call number `send` is kept."""
        fields = {"regime": regime, "order": order, "send": send, "kept": self._kept}
        said, _ = (by or self._session).ask("time", _ASK_S, fields, counts=False)
        times = _times(said, order)
        if send is not None and len(self._sent) < self._most_kept:
            outputs = flatten(unpack(said["result"], self._session.incoming([])))
            outputs.leaves = [leaf.clone() for leaf in outputs.leaves]
            self._sent.append((order[send], outputs))
        return times

    def _without_launches(self, regime: Regime) -> float | None:
        """Microseconds of a call that launches none of the candidate's kernels; None if it then fails."""
        order = [index % len(self._calls) for index in range(LEAST_CALLS)]
        fields = {"regime": regime, "order": order, "send": None, "kept": self._kept, "suppress_all": True}
        said, _ = self._timed_by(regime).ask("time", _ASK_S, fields, tolerate=True, counts=False)
        return None if "error" in said else statistics.median(_times(said, order))

    def _wall(self, slowest_us: float) -> dict[str, float]:
        """Time a call by the judge's clock, from outside the candidate's process.

        If the latency has not been measured, these blocks are also its measurement.
        """
        count = max(FEW_FOR_THE_WALL, min(MOST_FOR_THE_WALL, int(WALL_S * 1e6 / slowest_us)))
        watched: _Blocks = ([], [])
        claimed = self._blocks.setdefault("latency", watched)[1]
        orders: dict[int, list[int]] = {}

        def eager(size: int) -> list[float]:
            orders[size] = self._order(size)
            watched[0].append(self._eager("latency", orders[size]))
            return watched[0][-1]

        def ours(size: int) -> list[float]:
            send = self._trial.random.randrange(size)
            watched[1].append(self._ours("latency", orders[size], send))
            return watched[1][-1]

        return by_the_judge(eager, ours, count, lambda: _median(claimed), time.perf_counter)

    # ------------------------------------------------------------------------------------------ what it says

    def _compare(self) -> None:
        if self._trial.facts.mutates_inputs:  # each timed call found other numbers there
            self._trial.record.check("digest", "skip", "the reference changes its inputs")
            return
        for index, outputs in self._sent:
            given, answer = self._sets[index], self._answers[index]
            compared = self._session.comparison(given, Returned(outputs, "", {}, 0.0), 0, answer)
            if not compared.ok:
                self._trial.record.check("digest", "fail", compared.detail)
                plain = self._session.call(given, 0, tolerate=True)
                if not self._session.comparison(given, plain, 0, answer).ok:  # wrong, timed or not
                    self._trial.fail(compared)
                self._trial.hack("D1.late_or_stale_when_timed", detail=compared.detail)
                return
        self._trial.record.check("digest", "pass", f"{len(self._sent)} timed results")

    def _share(self, found: dict[str, Any]) -> None:
        """Record how much of the time is spent in the candidate's own kernels."""
        record, others, all_of_it = self._trial.record, found["others_us"], _kernels(found)["median_us"]
        if others is None:
            why = "it fails without its launches" if not found["waits"] else "a call waits for the GPU"
            record.check("coverage", "skip", why)
            return
        share = max(0.0, 1 - others / all_of_it)
        record.check("coverage", "pass", f"{others:.1f} of {all_of_it:.1f} us are not its own kernels'")
        record.grade.coverage = round(share, 4)
        if share < 0.5:
            record.flag("A4.torch_does_most", "soft", share=round(1 - share, 3), measured=True)

    def _physics(self, found: dict[str, Any]) -> None:
        """Check that no bytes move faster than memory allows.

        Data that fits into the cache may not have been written yet.
        """
        must = max(0, self._moved - l2_cache_bytes())
        floor = must / found["bandwidth"] * 1e6
        ours, eager = _kernels(found)["median_us"], _kernels(found)["eager_us"]
        found["roofline_frac"] = self._moved / found["bandwidth"] * 1e6 / ours
        # A reference that is itself faster does not need all of its bytes: an embedding, a slice.
        beyond = ours < MIN_FRACTION_OF_MEMORY_TIME * floor <= eager
        text = f"{ours:.1f} us; to move its bytes takes {floor:.1f} us"
        self._trial.record.check("physics", "fail" if beyond else "pass", text)
        if beyond:
            self._trial.hack("D13.faster_than_the_memory", detail=text)


def _ready(trial: Trial, call: Call) -> Session | None:
    """The process that runs the candidate's program, ready to be timed; None if there is none."""
    program, first = trial.program, trial.first
    if program is None or first is None or trial.shapes_vary:
        return None
    if program.recording is not first and program.load(first):
        return None
    ready = program.ready(call, trial.seed())
    return program.process if ready else None


def _sets(trial: Trial) -> list[Call]:
    """Make several input sets, so that cached data of one call does not help the next.

    Large inputs exceed the cache anyway, so one set may do.
    """
    first = trial.session.reference.inputs(trial.seed())
    given = bytes_of(first.tensors()) + 4096
    answer = trial.session.expected(first, 0)
    taken = bytes_of(answer.eager.leaves) + bytes_of(answer.exact.leaves)
    room = trial.session.outgoing().size  # type: ignore[attr-defined]
    count = max(1, min(SETS, room // given, _ROOM // (given + taken)))
    return [first, *(trial.session.reference.inputs(trial.seed()) for _ in range(count - 1))]


def _kernels(found: dict[str, Any]) -> dict[str, Any]:
    """The times that are closest to the kernels' own."""
    nearest: dict[str, Any] = found.get("device") or found["latency"]
    return nearest


def most_kept(most: int, size: int) -> int:
    """How many results of this size may be kept at a time."""
    return max(1, min(most, _ROOM // (size + 1)))


def bytes_of(tensors: Iterable[torch.Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def _times(said: dict[str, Any], order: list[int]) -> list[float]:
    times = [float(t) for t in said["times"]]
    if len(times) != len(order) or any(not t > 0 for t in times):
        raise ValueError("the times are not those of the calls asked for")
    return times


def _summary(eager: list[list[float]], ours: list[list[float]]) -> dict[str, Any]:
    result, flat = ratio(eager, ours, BETWEEN_PROCESSES), [t for block in ours for t in block]
    medians = sorted(statistics.median(block) for block in ours)
    return {
        "median_us": statistics.median(flat),
        "mean_us": statistics.fmean(flat),
        "std_us": statistics.stdev(flat) if len(flat) > 1 else 0.0,
        "min_us": min(flat),
        "max_us": max(flat),
        "ci": [medians[0], medians[-1]],
        "n": len(flat),
        "eager_us": _median(eager),
        "speedup": result.value,
        "low": result.low,
        "high": result.high,
        "pairs": len(eager),
    }


def _median(blocks: list[list[float]]) -> float:
    return statistics.median(t for block in blocks for t in block)


def _reserve(results: list[torch.Tensor], count: int) -> None:
    """Have torch's allocator hold memory for this many copies of the results."""
    copies = [torch.empty_like(leaf) for leaf in results for _ in range(count)]
    del copies


def _bytes(trial: Trial, call: Call, outputs: Outputs) -> int:
    """The bytes that a call has to move: not what it may choose from by indices, nor its inputs a second time."""
    facts, state = trial.facts, trial.session.model.state_dict().values()
    read = [] if "gather" in trial.work.kinds else [*call.tensors(), *state]
    written = [] if facts.mutates_inputs or facts.aliases_inputs else outputs.leaves
    return bytes_of([*read, *written])
