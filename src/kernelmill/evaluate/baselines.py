"""What a candidate is compared with beside eager: the reference compiled by torch, timed against eager itself."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from kernelmill.evaluate.clock import Clock, Regime
from kernelmill.evaluate.ratio import ratio
from kernelmill.evaluate.values import Call

_MODES = {"compile": None, "compile_max": "max-autotune-no-cudagraphs"}
_PAIRS, _WARM_PAIRS, _CALLS = 8, 2, 6
_REGIMES: tuple[Regime, ...] = ("latency", "device")


def measure_baselines(
    model: Any,
    calls: list[Call],
    modes: list[str],
    alone: Callable[[], AbstractContextManager[None]],
    kept: int,
) -> dict[str, Any]:
    """How many times as fast as eager each way of compiling the reference is, by regime. `kept`: results, by the clock."""
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
        with alone():
            for regime in _REGIMES:
                pairs = [
                    [
                        clock.block([side[i % len(calls)] for i in range(_CALLS)], regime)
                        for side in (eager, fast)
                    ]
                    for _ in range(_WARM_PAIRS + _PAIRS)
                ][_WARM_PAIRS:]
                found[mode][regime] = ratio([a for a, _ in pairs], [b for _, b in pairs]).value
    return found
