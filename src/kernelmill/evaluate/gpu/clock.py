"""Time calls on a GPU by events on the current stream; candidates and baselines use the same loop.

Before each call the L2 cache is overwritten and the inputs change. Results are kept for some calls, so that
the output memory changes too. In the `device` regime, all calls are queued behind a spinning kernel, so the
GPU never waits for Python: the time is the kernels' own. In the `latency` regime, the time is what a caller
sees, including Python's launch overhead.

Code that waits for the GPU (`.item()`, `torch.cuda.synchronize()`) would also wait for the spin, and nothing
could be queued behind it. `waits` detects this; such code has only a latency. A spin never lasts longer than
`MOST_SPIN_S`.
"""

from __future__ import annotations

import functools
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch

Regime = Literal["device", "latency"]
FLUSH = 2.0
"""Bytes overwritten between calls, as a multiple of the L2 cache size."""
KEPT_RESULTS = 4
MOST_SPIN_S = 0.02
_LEAST_SPIN_S = 0.0003
_PATIENT_SPIN_S = 0.002
_AHEAD = 1.3
"""Length of a spin, as a multiple of the time Python takes to queue the calls behind it."""
_TRIES = 3
_COUNTED_CYCLES = 500_000
_COPIED_BYTES, _COPIES = 256 << 20, 6


class Clock:
    def __init__(self, kept: int = KEPT_RESULTS) -> None:
        self._kept = kept
        self._flush = torch.empty(int(FLUSH * l2_cache_bytes()), dtype=torch.uint8, device="cuda")
        # Bound here, so that later changes a candidate makes to torch.cuda.Event have no effect.
        self._event, self._sleep = torch.cuda.Event, torch.cuda._sleep
        self._synchronize, self._query = torch.cuda.synchronize, torch.cuda.Event.query
        self._record, self._elapsed = torch.cuda.Event.record, torch.cuda.Event.elapsed_time
        self._now = time.perf_counter
        self._mhz = 1.0
        self.mhz()
        self._queueing = 0.0001
        """Seconds that Python last took to queue a call."""

    def waits(self, call: Callable[[], Any]) -> bool:
        """Whether a call waits for work queued earlier on the GPU, or takes too long to queue.

        Queues a spin that lasts several times as long as the call takes on an idle GPU. If the spin is over
        when the call returns, the call has waited for it. This must happen three times out of three, because
        once may be chance.
        """
        took = []
        for _ in range(_TRIES):
            self._synchronize()
            start = self._now()
            call()
            took.append(self._now() - start)
        self._queueing = min(took)
        spin = max(_PATIENT_SPIN_S, 4 * self._queueing)
        if spin > MOST_SPIN_S:
            self._synchronize()
            return True
        return all(self._waited(call, spin) for _ in range(_TRIES))

    def _waited(self, call: Callable[[], Any], spin: float) -> bool:
        start, spun = (self._event(enable_timing=True) for _ in range(2))
        self._synchronize()
        self._record(start)
        self._spin(spin)
        self._record(spun)
        call()
        waited = bool(self._query(spun))
        self._synchronize()
        self._mhz *= spin / (1e-3 * self._elapsed(start, spun))  # clocks change under load
        return waited

    def block(
        self,
        calls: Sequence[Callable[[], Any]],
        regime: Regime,
        after: Callable[[int, Any], None] | None = None,
    ) -> list[float]:
        """Return the microseconds of each call.

        `after` gets each result at once, on the same stream, before any wait.
        """
        if regime == "latency":
            return self._queued(calls, 0.0, after, 0)[0]
        times: list[float] = []
        while len(times) < len(calls):
            # As many calls at a time as can be queued during one spin.
            size = max(1, int(MOST_SPIN_S / _AHEAD / self._queueing))
            part = calls[len(times) : len(times) + size]
            times += self._behind_a_spin(part, after, len(times))
        return times

    def _behind_a_spin(
        self, calls: Sequence[Callable[[], Any]], after: Callable[[int, Any], None] | None, first: int
    ) -> list[float]:
        spin = _LEAST_SPIN_S + _AHEAD * len(calls) * self._queueing
        for _ in range(_TRIES):
            times, drained = self._queued(calls, min(spin, MOST_SPIN_S), after, first)
            if not drained:
                break
            spin *= 2  # Python was slower this time: the measured times include its pauses
        return times

    def _queued(
        self,
        calls: Sequence[Callable[[], Any]],
        spin: float,
        after: Callable[[int, Any], None] | None,
        first: int,
    ) -> tuple[list[float], bool]:
        """Return the times, and whether the GPU started before all was queued.

        `first` is the first call's number.
        """
        starts, ends = ([self._event(enable_timing=True) for _ in calls] for _ in range(2))
        begun, kept = self._event(), deque[Any](maxlen=self._kept)
        self._synchronize()
        began = self._now()
        if spin:
            self._spin(spin)
        self._record(begun)
        for number, call in enumerate(calls):
            self._flush.zero_()
            self._record(starts[number])
            result = call()
            self._record(ends[number])
            if after is not None:
                after(first + number, result)
            kept.append(result)
        drained = bool(spin) and bool(self._query(begun))
        if spin and not drained:
            self._queueing = (self._now() - began) / len(calls)
        self._synchronize()
        return [1e3 * self._elapsed(start, end) for start, end in zip(starts, ends, strict=True)], drained

    def _spin(self, seconds: float) -> None:
        self._sleep(int(seconds * self._mhz * 1e6))

    def mhz(self) -> float:
        """The current SM clock, measured by a kernel that counts its cycles. Spin lengths depend on it."""
        start, end = (self._event(enable_timing=True) for _ in range(2))
        self._sleep(_COUNTED_CYCLES)  # warm-up: clocks rise under load
        self._record(start)
        self._sleep(_COUNTED_CYCLES)
        self._record(end)
        self._synchronize()
        self._mhz = _COUNTED_CYCLES / (1e3 * self._elapsed(start, end))
        return float(round(self._mhz))


def l2_cache_bytes() -> int:
    """The size of this GPU's L2 cache."""
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return int(getattr(properties, "L2_cache_size", 50 << 20))


@functools.cache
def bandwidth() -> float:
    """The highest memory bandwidth seen on this GPU, in bytes per second, with nothing else running."""
    clock = Clock()
    source, target = (torch.empty(_COPIED_BYTES, dtype=torch.uint8, device="cuda") for _ in range(2))
    copies = [functools.partial(target.copy_, source)] * _COPIES
    return 2 * _COPIED_BYTES / (min(clock.block(copies, "device")) * 1e-6)
