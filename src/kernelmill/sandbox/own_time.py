"""How long a process has run by itself: the wall clock, less the time in which it waited for a processor.

A limit in wall-clock time convicts a process for what its neighbours do. The kernel counts, for each thread, how long
it was ready to run and did not (`/proc/PID/schedstat`). A process that sleeps, or waits for a device, is not waiting for a
processor: its time goes on.

What a process's other threads and the programs that it runs use of the processors is no reason to wait: a process cannot
hide in the queue behind its own work. And however busy a machine is, a fiftieth of the wall clock counts.

Where the kernel does not count (`counted` is False), own time is the wall clock.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import NamedTuple

_TICK = os.sysconf("SC_CLK_TCK")
_FILES = ("schedstat", "stat")
_LEAST = 0.02


class Mark(NamedTuple):
    """A moment in a process's life, in seconds."""

    wall: float
    waited: float
    """For a processor, by its first thread."""
    ran: float
    """Processor time of its first thread."""
    busy: float
    """Processor time of all threads, and of the processes that it has waited for."""


def counted() -> bool:
    """Whether this kernel counts: where it does not, the file is missing or full of zeros."""
    try:
        with open("/proc/self/schedstat", "rb") as file:
            return int(file.read().split()[0]) > 0
    except (OSError, LookupError, ValueError):
        return False


class OwnTime:
    """Looks at a process through two open files, so that a confined process may look, too."""

    def __init__(self, fds: Sequence[int]) -> None:
        self.fds = tuple(fds)
        self._last = Mark(time.monotonic(), 0.0, 0.0, 0.0)

    @classmethod
    def of(cls, pid: int | None = None) -> OwnTime:
        """Of this process, if no other is named."""
        fds: list[int] = []
        try:
            for name in _FILES:
                fds.append(os.open(f"/proc/{pid or 'self'}/{name}", os.O_RDONLY | os.O_CLOEXEC))
        except OSError:  # it is gone, or nothing is counted here: then only the wall clock goes
            for fd in fds:
                os.close(fd)
            fds = []
        return cls(fds)

    def close(self) -> None:
        fds, self.fds = self.fds, ()
        for fd in fds:
            os.close(fd)

    def mark(self) -> Mark:
        _, waited, ran, busy = self._last
        if self.fds:
            try:
                schedstat, stat = (os.pread(fd, 4096, 0) for fd in self.fds)
                ran, waited = (int(number) / 1e9 for number in schedstat.split()[:2])
                # After the name, which may hold anything: user, system, and both of children.
                busy = sum(map(int, stat.rpartition(b")")[2].split()[11:15])) / _TICK
            except (OSError, LookupError, ValueError):
                pass  # it has ended: what it had run then stays
        self._last = Mark(time.monotonic(), waited, ran, busy)
        return self._last

    def since(self, start: Mark) -> float:
        return together([(self, start)])


def processor_time(processes: Sequence[tuple[OwnTime, Mark]]) -> float:
    """Of all of them, since their marks, in seconds."""
    return sum(process.mark().busy - start.busy for process, start in processes)


def together(processes: Sequence[tuple[OwnTime, Mark]]) -> float:
    """Of processes that work in turn, since the earliest mark: while one is in the queue, the others wait for it."""
    wall = time.monotonic() - min(start.wall for _, start in processes)
    waited = sum(_waited(start, process.mark()) for process, start in processes)
    return max(wall - waited, _LEAST * wall)


def _waited(start: Mark, now: Mark) -> float:
    """For a processor that others had."""
    own = (now.busy - start.busy) - (now.ran - start.ran)
    return max(0.0, now.waited - start.waited - max(0.0, own))
