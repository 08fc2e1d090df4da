"""How long calls take on a GPU, by events on the current stream; the same loop for a candidate and for a baseline.

Before each call the L2 cache is written over and the inputs change. In the `device` regime everything is queued behind a
kernel that spins, so that the GPU never waits for Python: the time is the kernels' own. In the `latency` regime it is what a
caller sees, Python's launch included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch

Regime = Literal["device", "latency"]
FLUSH = 2.0
"""Times the L2 cache's size are written between calls."""
SPIN_CYCLES_PER_CALL = 400_000
SPIN_CYCLES_LEAST = 4_000_000


class Clock:
    def __init__(self) -> None:
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        size = int(FLUSH * getattr(properties, "L2_cache_size", 50 << 20))
        self._flush = torch.empty(size, dtype=torch.uint8, device="cuda")
        # Bound here: what a candidate does to torch.cuda.Event later does not matter.
        self._event, self._sleep = torch.cuda.Event, torch.cuda._sleep
        self._synchronize = torch.cuda.synchronize
        self._record, self._elapsed = torch.cuda.Event.record, torch.cuda.Event.elapsed_time

    def block(
        self,
        calls: Sequence[Callable[[], Any]],
        regime: Regime,
        after: Callable[[int, Any], None] | None = None,
    ) -> list[float]:
        """Microseconds of each call. `after` gets each result at once, on the same stream, before anything waits."""
        starts = [self._event(enable_timing=True) for _ in calls]
        ends = [self._event(enable_timing=True) for _ in calls]
        self._synchronize()
        if regime == "device":
            self._sleep(max(SPIN_CYCLES_LEAST, SPIN_CYCLES_PER_CALL * len(calls)))
        for number, call in enumerate(calls):
            self._flush.zero_()
            self._record(starts[number])
            result = call()
            self._record(ends[number])
            if after is not None:
                after(number, result)
        self._synchronize()
        return [1e3 * self._elapsed(start, end) for start, end in zip(starts, ends, strict=True)]
