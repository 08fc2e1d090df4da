"""Baselines other than eager: the reference compiled by torch, timed against eager."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernelmill.evaluate.gpu.clock import Clock, Regime
from kernelmill.evaluate.gpu.plan import LAUNCHES_MATTER_BELOW_US, Plan, TooSlowToTime
from kernelmill.evaluate.gpu.ratio import ratio
from kernelmill.evaluate.task.values import Call

_MODES = {"compile": None, "compile_max": "max-autotune-no-cudagraphs"}
_WARM_PAIRS, _MOST_CALLS = 2, 6
MOST_OPERATIONS = 1000
"""torch.compile takes about 40 ms for each operation of a call (of published references, those with 400 took up to
17 s). A call with more than this would not be compiled in the time for it, so that time is not spent."""


def measure_baselines(
    model: Any,
    calls: list[Call],
    modes: list[str],
    exclusive: Callable[[], AbstractContextManager[None]],
    kept: int,
) -> dict[str, Any]:
    """Measure the speed-up over eager of each compile mode, by regime.

    `kept` is how many results the clock keeps. Raise `TooSlowToTime` if compiling would take too long.
    """
    operations = operations_of(model, calls[0])
    if operations > MOST_OPERATIONS:
        raise TooSlowToTime(f"a call has {operations} operations, more than torch.compile gets time for")
    found: dict[str, Any] = {}
    clock = Clock(kept)
    eager = [functools.partial(call.on, model) for call in calls]
    for mode in modes:
        start = time.monotonic()
        compiled = torch.compile(model, mode=_MODES[mode])
        fast = [functools.partial(call.on, compiled) for call in calls]
        for first in fast:
            first()
        torch.cuda.synchronize()
        found[mode] = {"seconds": time.monotonic() - start}
        with exclusive():
            found[mode] |= _against(clock, eager, fast)
    return found


class _Counter(TorchDispatchMode):  # type: ignore[misc]
    operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operations += 1
        return func(*args, **(kwargs or {}))


def operations_of(model: Any, call: Call) -> int:
    """How many operations of torch one call of the model makes."""
    with _Counter() as counter:
        call.on(model)
    return int(counter.operations)


_Calls = Sequence[Callable[[], Any]]


def _against(clock: Clock, eager: _Calls, fast: _Calls) -> dict[str, float]:
    """The speed-up by regime.

    As for candidates, only latency is timed if a side waits for the GPU or calls are slow.
    """
    slowest = max(clock.block([side[0]], "latency")[0] for side in (eager, fast))
    both = slowest < LAUNCHES_MATTER_BELOW_US and not any(clock.waits(side[0]) for side in (eager, fast))
    regimes: tuple[Regime, ...] = ("latency", "device") if both else ("latency",)
    plan = Plan.of(slowest)
    found: dict[str, float] = {}
    for regime in regimes:
        pairs = [
            [
                clock.block([side[i % len(side)] for i in range(min(_MOST_CALLS, plan.calls))], regime)
                for side in (eager, fast)
            ]
            for _ in range(_WARM_PAIRS + plan.pairs)
        ][_WARM_PAIRS:]
        found[regime] = ratio([a for a, _ in pairs], [b for _, b in pairs]).value
    return found
