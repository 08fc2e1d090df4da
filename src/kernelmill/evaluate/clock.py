"""How long calls take on a GPU, by events on the current stream; the same loop for a candidate and for a baseline.

Before each call the L2 cache is written over and the inputs change; results are kept for some calls, so that the memory
which they are written to changes, too. In the `device` regime everything is queued behind a kernel that spins, so that the
GPU never waits for Python: the time is the kernels' own. In the `latency` regime it is what a caller sees, Python's launch
included.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch

Regime = Literal["device", "latency"]
FLUSH = 2.0
"""Times the L2 cache's size are written between calls."""
KEPT_RESULTS = 4
SPIN_CYCLES_PER_CALL = 150_000
_TRIES = 3
_COUNTED_CYCLES = 500_000
_COPIED_BYTES, _COPIES = 256 << 20, 6


class Clock:
    def __init__(self, kept: int = KEPT_RESULTS) -> None:
        self._kept = kept
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        size = int(FLUSH * getattr(properties, "L2_cache_size", 50 << 20))
        self._flush = torch.empty(size, dtype=torch.uint8, device="cuda")
        self._spin = SPIN_CYCLES_PER_CALL
        # Bound here: what a candidate does to torch.cuda.Event later does not matter.
        self._event, self._sleep = torch.cuda.Event, torch.cuda._sleep
        self._synchronize, self._query = torch.cuda.synchronize, torch.cuda.Event.query
        self._record, self._elapsed = torch.cuda.Event.record, torch.cuda.Event.elapsed_time

    def block(
        self,
        calls: Sequence[Callable[[], Any]],
        regime: Regime,
        after: Callable[[int, Any], None] | None = None,
    ) -> list[float]:
        """Microseconds of each call. `after` gets each result at once, on the same stream, before anything waits."""
        for _ in range(_TRIES):
            times, drained = self._block(calls, regime, after)
            if not drained:
                break
            self._spin *= 2  # Python was slower than that: what was measured holds its pauses
        return times

    def _block(
        self, calls: Sequence[Callable[[], Any]], regime: Regime, after: Callable[[int, Any], None] | None
    ) -> tuple[list[float], bool]:
        """The times, and whether the GPU began before all was queued."""
        starts, ends = ([self._event(enable_timing=True) for _ in calls] for _ in range(2))
        begun, kept = self._event(), deque[Any](maxlen=self._kept)
        self._synchronize()
        if regime == "device":
            self._sleep(self._spin * (len(calls) + 2))
        self._record(begun)
        for number, call in enumerate(calls):
            self._flush.zero_()
            self._record(starts[number])
            result = call()
            self._record(ends[number])
            if after is not None:
                after(number, result)
            kept.append(result)
        drained = regime == "device" and self._query(begun)
        self._synchronize()
        return [1e3 * self._elapsed(start, end) for start, end in zip(starts, ends, strict=True)], drained

    def mhz(self) -> float:
        """The processors' clock now, by a kernel that counts its cycles."""
        start, end = (self._event(enable_timing=True) for _ in range(2))
        self._sleep(_COUNTED_CYCLES)  # a first one: clocks rise under load
        self._record(start)
        self._sleep(_COUNTED_CYCLES)
        self._record(end)
        self._synchronize()
        return float(round(_COUNTED_CYCLES / (1e3 * self._elapsed(start, end))))


@functools.cache
def bandwidth() -> float:
    """Bytes a second that this GPU's memory was seen to move, at best, with nothing else on it."""
    clock = Clock()
    source, target = (torch.empty(_COPIED_BYTES, dtype=torch.uint8, device="cuda") for _ in range(2))
    copies = [functools.partial(target.copy_, source)] * _COPIES
    return 2 * _COPIED_BYTES / (min(clock.block(copies, "device")) * 1e-6)
