"""What a call has been through, and how long it waits before it is made again.

A pause grows with each failure of the call: quickly while nobody is served, for then the server is in trouble; slowly where
others are, for then it is chance or this call. A call that the server pushes back is not given up, unless it is this one that
the server does not want.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from kernelmill.llm.client import TransientError

PAUSES = (0.5, 60.0)
"""Seconds: the first pause at most, half of it while others are served; and the longest."""
_OTHERS = 8
"""Calls served in the meantime that show that a server which pushes this one back serves others."""


@dataclass
class Trouble:
    """The failures of one call."""

    reason: str = ""
    """Why the call is made again."""
    failures: int = 0
    pushes: int = 0
    _strikes: int = 0
    _unserved: int = 0
    """Failures in a row while nobody was served."""
    _served: int = 0

    def note(self, error: TransientError, served: int, outage: bool, alone: bool) -> None:
        """One failure more. `served` counts all calls so far; `outage` says that nobody is served now, `alone` that only
        calls like this one are left."""
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
        """Seconds to wait: jittered, never less than the server asked for.

        Push-back alone does not make it grow: the limiter slows the run as a whole.
        """
        first, longest = PAUSES
        slowly = (first / 2) * (1.0 + max(0, self.failures - 1) / 2)
        quickly = first * 2.0 ** min(20, max(0, min(self._unserved, self.failures) - 1))
        growing = max(slowly, quickly) if self._unserved else slowly
        return max(retry_after or 0.0, random.uniform(0.5, 1.0) * min(longest, growing))
