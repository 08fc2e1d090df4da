"""The judge's record of one candidate, the limits on it, and how a failure becomes its status."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelmill.evaluate.task.reference import BadReference
from kernelmill.evaluate.verdict import BAD_REFERENCE, Check, Flag, Grade, Result, Severity, Status

TOO_SLOW = "too slow to be judged here"
"""Prefix of the error when a limit stopped a candidate that was not shown to hang."""


class Stop(Exception):
    """Ends the judgement with a final status."""

    def __init__(self, status: Status, error: str) -> None:
        super().__init__(error)
        self.status, self.error = status, error


def _our_fault(error: Exception) -> str:
    """Describe an exception in the judge, with its last three frames: the reference's or the evaluator's."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    places = ", ".join(f"{os.path.basename(f.filename)}:{f.lineno}" for f in frames)
    return f"{type(error).__name__}: {error} ({places})"


@contextmanager
def record_failure(record: Record) -> Iterator[None]:
    """Turn an exception that ends the judgement into the record's status and error.

    `MemoryError` is re-raised: the process reports it.
    """
    try:
        yield
    except Stop as stop:
        record.status, record.error = stop.status, stop.error
    except BadReference as error:
        # A permanent failure is a verdict. A transient one (`passing`) has to be judged again.
        record.status = "INFRA_ERROR" if error.passing else "UNSUPPORTED"
        record.error = f"{BAD_REFERENCE}: {error}"
    except torch.cuda.OutOfMemoryError as error:
        record.status, record.error = "INFRA_ERROR", f"the reference does not fit: {error}"
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001  the record names the error and its place
        record.status, record.error = "INFRA_ERROR", _our_fault(error)
    ours = record.status == "INFRA_ERROR" or record.error.startswith(BAD_REFERENCE)
    if record.hard() and not ours:  # a proven hack stays a hack, whatever else kept it from being judged
        record.status = "HACK"


@dataclass
class Limits:
    """Limits on a candidate process's own time (`sandbox.own_time`), in seconds.

    Time spent waiting for a processor does not count.
    """

    load_s: float = 20.0
    call_s: float = 10.0
    total_s: float = 60.0
    """For all calls together. A candidate that needs more is too slow to be judged, not wrong."""
    replay_s: float = 0.1
    """For calls that only repeat what others have shown (`probes.replay`), after the least number of them."""
    compile_s: float = 60.0
    """For compiling one kernel in one configuration, on a GPU. Not counted in `total_s`."""
    compile_total_s: float = 600.0
    """For all compilations together: autotuners have many configurations."""


@dataclass
class Record:
    """The judge's findings, from which a verdict is built."""

    checks: list[Check] = field(default_factory=list)
    flags: list[Flag] = field(default_factory=list)
    grade: Grade = field(default_factory=Grade)
    kernelbench_compat: dict[str, bool] = field(
        default_factory=lambda: {"correct_1e-2": True, "correct_1e-4": True}
    )
    signatures: list[dict[str, Any]] = field(default_factory=list)
    kernels: list[str] = field(default_factory=list)
    texts: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The kernels of the candidate's program, as text (`trace.kernel_text`)."""
    trace: dict[str, Any] | None = None
    """The program itself, if it is wanted (`trace.saving`)."""
    task: dict[str, Any] = field(default_factory=dict)
    status: Status = "PASSED"
    error: str = ""
    retry_exclusively: bool = False
    """The candidate timed out while sharing the device, which proves nothing.

    It has to be judged again with exclusive use of the device.
    """

    def check(self, name: str, result: Result, detail: str = "", **rest: Any) -> None:
        self.checks.append(Check(name, result, detail, **rest))

    def flag(self, code: str, severity: Severity, **evidence: Any) -> None:
        if not any(flag.code == code for flag in self.flags):
            self.flags.append(Flag(code, severity, evidence))

    def hard(self) -> bool:
        return any(flag.severity == "hard" for flag in self.flags)
