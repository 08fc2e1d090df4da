"""A worker for `kernelmill.sandbox` that tries one problem.

It executes untrusted code, so call `handle` only in a sandboxed process.

    full     at the problem's own size, on fake tensors; for real only if the module reads values and fits
    shrunk   at a size for a CPU, through the evaluator's admission: it runs, and outputs depend on inputs

For problems that use `transformers`, the server's environment asks for models: they are built from a table of
sizes, with random weights (`evaluate.task.offline_models`).
"""

from __future__ import annotations

import importlib
import math
import os
import warnings
from collections import Counter
from typing import Any

from kernelmill.evaluate.admit import worker as admit
from kernelmill.evaluate.task import offline_models
from kernelmill.problems import trace_worker


def prepare() -> None:
    """Warm up torch before forking children."""
    trace_worker.prepare()
    admit.prepare()
    if offline_models.VARIABLE in os.environ:
        _count_positions()


def handle(request: dict[str, Any]) -> dict[str, Any]:
    """Run one step of the check. Returns the fields of `problem.FullSize`, or the result of `admit`."""
    warnings.simplefilter("ignore")
    if request["step"] == "full":
        with offline_models.sized("full"):
            return _summary(trace_worker.handle(request))
    with offline_models.sized("small"):
        return admit.admission(request["code"], request["entry_point"])


def _summary(trace: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a trace that a record keeps: thousands of operations would make it megabytes."""
    return {
        "mode": trace["mode"],
        "convention": trace["convention"],
        "inputs": trace["inputs"],
        "outputs": trace["outputs"],
        "parameters": sum(math.prod(fact["shape"]) for fact in trace["parameters"]),
        "flops": sum(op["flops"] or 0 for op in trace["ops"]),
        "kinds": dict(Counter(op["kind"] for op in trace["ops"]).most_common()),
        "operations": len(trace["ops"]) + trace["ops_left_out"],
    }


class _Counted:
    """Positions 0, 1, 2 …, whose maximum is known from their shape."""

    def __init__(self, positions: Any) -> None:
        self._positions = positions
        self.shape = positions.shape

    def __getitem__(self, at: int) -> Any:
        return self._positions[at]

    def max(self) -> Any:
        return self

    def item(self) -> int:
        return int(self.shape[1]) - 1


def _count_positions() -> None:
    """Patch Reformer, which reads the maximum of its positions.

    Fake tensors have no values, and a real run takes minutes.
    """
    reformer: Any = importlib.import_module("transformers.models.reformer.modeling_reformer")
    kind = reformer.AxialPositionEmbeddings
    plain = kind.forward
    kind.forward = lambda self, positions: plain(self, _Counted(positions))
