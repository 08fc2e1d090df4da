"""Measure a process's own time: wall-clock time minus the time spent waiting for a CPU.

A wall-clock limit penalises a process for the load of its neighbours. The kernel counts, per thread, how long
it was runnable but not running (`/proc/PID/schedstat`). A process that sleeps or waits for a device is not
waiting for a CPU, so that time counts.

CPU time used by the process's other threads and by the programs it runs is subtracted from the wait: a
process cannot hide in the run queue behind its own work. However busy the machine is, at least a fiftieth of
the wall clock counts.

If the kernel does not keep this count (`counted` is False), own time is wall-clock time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import NamedTuple

_TICK = os.sysconf("SC_CLK_TCK")
_FILES = ("schedstat", "stat")
MOST_CLOCK_FILES = len(_FILES)
_LEAST = 0.02
_TRIES = 5
"""To read the wall clock and the counts at one moment."""


class Mark(NamedTuple):
    """A snapshot of a process's times, in seconds."""

    wall: float
    waited: float
    """Time its first thread waited for a CPU."""
    ran: float
    """CPU time of its first thread."""
    busy: float
    """CPU time of all threads, and of the child processes it has waited for."""


def counted() -> bool:
    """Whether this kernel counts: if not, the file is missing or all zeros."""
    try:
        with open("/proc/self/schedstat", "rb") as file:
            return int(file.read().split()[0]) > 0
    except (OSError, LookupError, ValueError):
        return False


class OwnTime:
    """Reads a process's times through two open files, so that a sandboxed process can read them too."""

    def __init__(self, fds: Sequence[int]) -> None:
        self.fds = tuple(fds)
        self._last = Mark(time.monotonic(), 0.0, 0.0, 0.0)

    @classmethod
    def of(cls, pid: int | None = None) -> OwnTime:
        """Open the clock of a process, by default of this one."""
        fds: list[int] = []
        try:
            for name in _FILES:
                fds.append(os.open(f"/proc/{pid or 'self'}/{name}", os.O_RDONLY | os.O_CLOEXEC))
        except OSError:  # the process is gone, or nothing is counted here: use wall-clock time only
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
        wall = time.monotonic()
        if self.fds:
            try:
                waited, ran, busy = self._read()
                for _ in range(_TRIES):
                    # If this process lost its processor in between, the wall clock and the counts do not belong together.
                    before, wall = waited, time.monotonic()
                    waited, ran, busy = self._read()
                    if waited == before:
                        break
            except (OSError, LookupError, ValueError):
                pass  # it has ended: what it had run then stays
        self._last = Mark(wall, waited, ran, busy)
        return self._last

    def _read(self) -> tuple[float, float, float]:
        """Seconds: waited and run by the first thread, and the processor time of all threads and ended children."""
        schedstat, stat = (os.pread(fd, 4096, 0) for fd in self.fds)
        ran, waited = (int(number) / 1e9 for number in schedstat.split()[:2])
        # After the name, which may hold anything: user, system, and both of children.
        busy = sum(map(int, stat.rpartition(b")")[2].split()[11:15])) / _TICK
        return waited, ran, busy

    def since(self, start: Mark) -> float:
        return together([(self, start)])


def processor_time(processes: Sequence[tuple[OwnTime, Mark]]) -> float:
    """Total CPU time of all processes since their marks, in seconds."""
    return sum(process.mark().busy - start.busy for process, start in processes)


def together(processes: Sequence[tuple[OwnTime, Mark]]) -> float:
    """Own time of processes that work in turn, since the earliest mark.

    While one is in the run queue, the others wait for it.
    """
    marks = [(start, process.mark()) for process, start in processes]
    wall = max(now.wall for _, now in marks) - min(start.wall for start, _ in marks)
    waited = sum(_waited(start, now) for start, now in marks)
    return max(wall - waited, _LEAST * wall)


def _waited(start: Mark, now: Mark) -> float:
    """Time spent waiting for a CPU that other processes held."""
    own = (now.busy - start.busy) - (now.ran - start.ran)
    return max(0.0, now.waited - start.waited - max(0.0, own))
