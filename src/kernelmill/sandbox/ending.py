"""End processes without blocking on any one of them: a process with a CUDA context takes 0.1 s to die."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from kernelmill.sandbox.confine import end_with
from kernelmill.sandbox.scratch import remove_tree

_PATIENCE = 10.0
"""Seconds after which to stop waiting for a killed process: a driver may block it forever."""


@dataclass
class Process:
    pid: int
    scratch: str


@dataclass
class _Group:
    processes: list[Process]
    then: Callable[[list[int], str], None]
    since: float = field(default_factory=time.monotonic)
    statuses: dict[int, int] = field(default_factory=dict)
    trouble: str = ""


class Endings:
    """Killed processes that have not been reaped yet. Call `look` often while `busy`."""

    def __init__(self) -> None:
        self._server = os.getpid()
        self._groups: list[_Group] = []
        self._removing: set[int] = set()
        self._stuck: set[int] = set()

    @property
    def busy(self) -> bool:
        return bool(self._groups)

    def end(self, processes: list[Process], then: Callable[[list[int], str], None]) -> None:
        """Kill the processes and their groups.

        Calls `then` with the exit statuses once all have ended and their folders are removed.
        """
        for process in processes:
            for kill in (os.killpg, os.kill):  # both: the process may not have called setsid yet
                with contextlib.suppress(ProcessLookupError):
                    kill(process.pid, signal.SIGKILL)
        self._groups.append(_Group(processes, then))
        self.look()

    def look(self) -> None:
        for pids in (self._removing, self._stuck):
            pids -= {pid for pid in pids if os.waitpid(pid, os.WNOHANG)[0]}
        for group in self._groups[:]:
            self._look_at(group)
            late = time.monotonic() > group.since + _PATIENCE
            left = [one.pid for one in group.processes if one.pid not in group.statuses]
            if left and not late:
                continue
            self._groups.remove(group)
            if left:
                self._stuck.update(left)
                group.trouble += f"\n(killed {_PATIENCE:.0f} s ago and not ended: {left})"
            group.then([group.statuses.get(p.pid, -signal.SIGKILL) for p in group.processes], group.trouble)

    def close(self) -> None:
        """Wait for the processes that are still ending, for up to the usual limit."""
        while self.busy:
            self.look()
            time.sleep(0.002)
        for pid in self._removing:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def _look_at(self, group: _Group) -> None:
        for process in group.processes:
            if process.pid in group.statuses:
                continue
            ended, status = os.waitpid(process.pid, os.WNOHANG)
            if not ended:
                continue
            group.statuses[process.pid] = os.waitstatus_to_exitcode(status)
            try:
                if not remove_tree(process.scratch, budget=0.05):
                    self._remove_aside(process.scratch)
            except OSError as error:
                group.trouble += f"\n(its scratch folder is left: {error})"

    def _remove_aside(self, folder: str) -> None:
        """Remove a folder with very many entries in a separate process: other requests are waiting."""
        pid = os.fork()
        if pid == 0:
            try:
                end_with(self._server)
                os.closerange(3, 1 << 16)
                remove_tree(folder)
            finally:
                os._exit(0)
        self._removing.add(pid)
