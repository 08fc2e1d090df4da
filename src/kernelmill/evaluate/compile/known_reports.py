"""Compile reports that are known already, so that nothing is compiled twice in a batch.

The process that compiles a candidate executes its module, so the report may be forged: it says only what that
source says about itself. `KnownReports` therefore keys a report by the hash of everything that its process was
given: the candidate's whole source, all launches, the targets, the time and the server's environment. Whoever
finds a report has sent the same bytes, and would have been judged by the same code. A candidate can thus lie
about itself only. A key of less, such as the text of one kernel, would let a candidate that holds another's
kernel and lies about it decide the other's verdict. The reports are in the memory of the orchestrator, where no
candidate can write.

Kept are only reports that another run would repeat: no timeout, no process that died, no failure of this
machine, and nothing that is unknown, as when no time was left.

Not covered: the same kernel in candidates with different sources is compiled for each.

Standard library and `compiling` only.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
from collections.abc import Awaitable, Callable
from typing import Any

from kernelmill.evaluate.compile.compiling import CompileReport

_MOST = 4096
"""How many reports are kept. One is about a kilobyte."""
_REPEATABLE = (None, "COMPILE_ERROR", "OUT_OF_RESOURCES")


class KnownReports:
    """The latest reports of one evaluator. Safe to use from several tasks of one event loop."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._reports: dict[str, CompileReport] = {}
        """By key, the least recently used first."""
        self._compiling: dict[str, asyncio.Event] = {}
        """By key, what is being compiled; set when it is done."""

    async def get(
        self, given: list[Any], compile_it: Callable[[], Awaitable[CompileReport]]
    ) -> CompileReport:
        """The report for what is `given`, which must be all that `compile_it` sends to the process.

        While one task compiles, others with the same key wait for it. If its report is not kept, each of them
        compiles. A known report cost nothing: its `seconds` and `cpu` are 0.
        """
        key = hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()
        if key in self._compiling:
            await self._compiling[key].wait()
        if (known := self._reports.pop(key, None)) is not None:
            self._reports[key] = known
            found = copy.deepcopy(known)
            found["seconds"] = found["cpu"] = 0.0
            return found
        done = self._compiling.setdefault(key, asyncio.Event())
        try:
            report = await compile_it()
            if _repeatable(report):
                self._keep(key, copy.deepcopy(report))
        finally:
            done.set()
            self._compiling.pop(key, None)
        return report

    def _keep(self, key: str, report: CompileReport) -> None:
        self._reports[key] = report
        while len(self._reports) > self._most:
            del self._reports[next(iter(self._reports))]


def _repeatable(report: CompileReport) -> bool:
    statuses = [k["status"] for target in report["targets"].values() for k in target["kernels"].values()]
    return not report.get("died") and all(status in _REPEATABLE for status in statuses)
