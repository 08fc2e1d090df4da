"""Retry state of one call: its failures so far, and the pause before the next try.

The pause grows with each failure of the call: exponentially during an outage, when no call succeeds, and
linearly while other calls succeed, since then the failure is chance or specific to this call. Push-back alone
does not fail a call, unless the server keeps rejecting this one while it serves others, or only pushed-back
calls are left.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from kernelmill.llm.client import TransientError

PAUSES = (0.5, 60.0)
"""Seconds: upper bound of the first pause (half of it while other calls succeed), and of the longest."""
_OTHERS = 8
"""Calls served between two push-backs that show that the server rejects only this call."""


@dataclass
class Trouble:
    """The failures of one call."""

    reason: str = ""
    """Why the call is retried."""
    failures: int = 0
    pushes: int = 0
    _strikes: int = 0
    _unserved: int = 0
    """Consecutive failures during an outage."""
    _served: int = 0

    def note(self, error: TransientError, served: int, outage: bool, alone: bool) -> None:
        """Record one more failure.

        `served`: calls that succeeded so far. `outage`: no call succeeds at the moment. `alone`: only
        pushed-back calls are left.
        """
        self.reason = str(error)[:80]
        self._unserved = self._unserved + 1 if outage else 0
        if error.pushed_back:
            self.pushes += 1
            self._strikes += self.pushes > 1 and (served - self._served >= _OTHERS or alone)
        else:
            self.failures += 1
        self._served = served

    def hopeless(self, server_retries: int) -> bool:
        return self.failures > server_retries or self._strikes > 2 * max(8, server_retries)

    @property
    def total(self) -> int:
        return self.failures + self.pushes

    def pause(self, retry_after: float | None) -> float:
        """Seconds to wait, jittered, never less than the server asked for.

        Push-back alone does not lengthen the pause: the limiter already slows the whole run.
        """
        first, longest = PAUSES
        slowly = (first / 2) * (1.0 + max(0, self.failures - 1) / 2)
        quickly = first * 2.0 ** min(20, max(0, min(self._unserved, self.failures) - 1))
        growing = max(slowly, quickly) if self._unserved else slowly
        return max(retry_after or 0.0, random.uniform(0.5, 1.0) * min(longest, growing))
