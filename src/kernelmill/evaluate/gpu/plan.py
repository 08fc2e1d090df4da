"""Decide how many calls to time, by how long a call takes: enough for a ratio before exclusive use ends.

No torch.
"""

from __future__ import annotations

from dataclasses import dataclass

EXCLUSIVE_S = 20.0
"""The cap on exclusive use of the GPU, in seconds. A candidate not timed by then stays untimed."""
LAUNCHES_MATTER_BELOW_US = 50_000.0
"""Longer calls are timed in one regime only: Python's overhead is negligible."""
LEAST_CALLS, MOST_CALLS = 5, 12
REPLAY_PAIRS = 4
_CALLS_OUTSIDE_PAIRS = 12
"""Calls of each side outside the pairs."""
_BLOCK_US, _FEW_US = 1500.0, 25_000.0
"""Target microseconds of a block. Slow calls get up to `LEAST_CALLS` per block, if these fit in the second
figure."""


class TooSlowToTime(Exception):
    """The call is too slow to time before exclusive use ends."""


@dataclass(frozen=True)
class Plan:
    """The number of calls per block, and the minimum numbers of pairs of blocks."""

    calls: int
    pairs: int
    replays: int
    """Blocks of the candidate's program beside blocks of the candidate's own."""

    @classmethod
    def of(cls, slowest_us: float) -> Plan:
        """Plan by the slower of the two sides. The longer a call takes, the less its time varies."""
        few = max(1, min(LEAST_CALLS, int(_FEW_US / slowest_us)))
        calls = max(few, min(MOST_CALLS, int(_BLOCK_US / slowest_us)))
        block_s = calls * slowest_us / 1e6
        pairs = 8 if block_s < 0.05 else 5 if block_s < 0.3 else 3
        # Both sides: the pairs, the blocks before them and those by the judge's clock. Then a few calls
        # without launches.
        replays = REPLAY_PAIRS if slowest_us < LAUNCHES_MATTER_BELOW_US else 1
        all_calls = 2 * (_CALLS_OUTSIDE_PAIRS + calls + (pairs + replays) * calls) + LEAST_CALLS
        if all_calls * slowest_us / 1e6 > 0.8 * EXCLUSIVE_S:
            raise TooSlowToTime(f"a call takes {slowest_us / 1e6:.1f} s")
        return cls(calls, pairs, replays)
