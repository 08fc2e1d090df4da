"""Baselines other than eager: the reference compiled by torch, timed against eager."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from kernelmill.evaluate.gpu.clock import Clock, Regime
from kernelmill.evaluate.gpu.plan import LAUNCHES_MATTER_BELOW_US, Plan
from kernelmill.evaluate.gpu.ratio import ratio
from kernelmill.evaluate.task.values import Call

_MODES = {"compile": None, "compile_max": "max-autotune-no-cudagraphs"}
_WARM_PAIRS, _MOST_CALLS = 2, 6


def measure_baselines(
    model: Any,
    calls: list[Call],
    modes: list[str],
    exclusive: Callable[[], AbstractContextManager[None]],
    kept: int,
) -> dict[str, Any]:
    """Measure the speed-up over eager of each compile mode, by regime.

    `kept` is how many results the clock keeps.
    """
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
