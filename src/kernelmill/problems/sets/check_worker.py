"""Tries one problem: a worker for `kernelmill.sandbox`. It executes a stranger's code, so call `handle` in a confined process and
nowhere else.

    full     at its own size, on tensors without memory (for real only where the module looks at its numbers, and where it fits)
    shrunk   at a size that a CPU takes, through the admission of the evaluator: it runs, and its outputs depend on its inputs
"""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

from kernelmill.evaluate.admit import worker as admit
from kernelmill.problems import trace_worker


def prepare() -> None:
    """What torch does only once, before there are children."""
    trace_worker.prepare()
    admit.prepare()


def handle(request: dict[str, Any]) -> dict[str, Any]:
    """`code`, `entry_point` and `step`; gives the fields of `checks.FullSize`, or what `admit` gives."""
    warnings.simplefilter("ignore")
    if request["step"] == "full":
        return _summary(trace_worker.handle(request))
    return admit.admission(request["code"], request["entry_point"])


def _summary(trace: dict[str, Any]) -> dict[str, Any]:
    """What a record keeps of a trace: thousands of operations would make it megabytes."""
    return {
        "mode": trace["mode"],
        "convention": trace["convention"],
        "inputs": [_tensor(fact) for fact in trace["inputs"]],
        "outputs": [_tensor(fact) for fact in trace["outputs"]],
        "parameters": sum(_elements(fact["shape"]) for fact in trace["parameters"]),
        "flops": sum(op["flops"] or 0 for op in trace["ops"]),
        "kinds": dict(Counter(op["kind"] for op in trace["ops"]).most_common()),
        "operations": len(trace["ops"]) + trace["ops_left_out"],
    }


def _tensor(fact: dict[str, Any]) -> dict[str, Any]:
    return {name: fact[name] for name in ("name", "shape", "dtype")}


def _elements(shape: list[int]) -> int:
    product = 1
    for size in shape:
        product *= size
    return product
