"""How much is timed, by how long a call takes: enough for a ratio, and no turn longer than its cap. No torch."""

from __future__ import annotations

from dataclasses import dataclass

TURN_S = 20.0
"""The cap on a turn alone on the GPU: who has not been timed then is not."""
LAUNCHES_MATTER_BELOW_US = 50_000.0
"""Calls that take longer have one time: what Python adds is nothing."""
LEAST_CALLS, MOST_CALLS = 5, 12
_BESIDE_PAIRS = 12
"""Calls of each side."""
_BLOCK_US, _FEW_US = 1500.0, 25_000.0
"""A block has as many calls as take so long; where they are slow, `LEAST_CALLS` if they take no longer than that."""


class TooSlowToTime(Exception):
    """A turn would not be long enough."""


@dataclass(frozen=True)
class Plan:
    """How many calls a block has and how many pairs of blocks there are at least, for calls that take so long."""

    calls: int
    pairs: int

    @classmethod
    def of(cls, slowest_us: float) -> Plan:
        """By the slower of the two sides. The longer a call takes, the less its time varies."""
        few = max(1, min(LEAST_CALLS, int(_FEW_US / slowest_us)))
        calls = max(few, min(MOST_CALLS, int(_BLOCK_US / slowest_us)))
        block_s = calls * slowest_us / 1e6
        pairs = 8 if block_s < 0.05 else 5 if block_s < 0.3 else 3
        # Of both sides: the pairs, those before them and those by the judge's clock; and a few calls without launches.
        all_calls = 2 * (_BESIDE_PAIRS + calls + pairs * calls) + LEAST_CALLS
        if all_calls * slowest_us / 1e6 > 0.8 * TURN_S:
            raise TooSlowToTime(f"a call takes {slowest_us / 1e6:.1f} s")
        return cls(calls, pairs)
