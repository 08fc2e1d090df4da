"""The original task without its numbers: the reference runs on the meta device, so nothing is allocated."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from kernelmill.evaluate.judge.torch_work import TorchWork, TorchWorkCounter
from kernelmill.evaluate.task.reference import BadReference, load_reference
from kernelmill.evaluate.task.values import Call
from kernelmill.torch_calls.recorder import flops_of
from kernelmill.torch_calls.tensors import tensors_in

_SECONDS = 0.5
"""Limit on processor time."""


class _Late(Exception):
    """The run exceeded `_SECONDS`, as long loops do."""


class _Briefly(TorchDispatchMode):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.flops = 0
        self._end = time.process_time() + _SECONDS

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if time.process_time() > self._end:
            raise _Late
        out = func(*args, **(kwargs or {}))
        half = any(t.element_size() < 4 for t in tensors_in(out) if t.is_floating_point())
        self.flops += (10 if half else 1) * (flops_of(func, args, kwargs or {}, out) or 0)
        return out


@dataclass
class OwnSize:
    """A task at its own size. The tensors are on the meta device: shapes and types only."""

    init: Call
    call: Call
    work: TorchWork
    """The reference's work in one call."""
    flops: int
    """Of its products. Those of half-precision numbers, which are slow on a CPU, count for ten."""
    bytes: int
    """Of inputs, weights and outputs."""
    elements: int
    largest: int
    """Elements of the largest of these tensors."""


def own_size(code: str, entry_point: str | None) -> OwnSize | None:
    """The task at its own size; None if the reference does not run on the meta device."""
    counter = TorchWorkCounter(keep=False)
    try:
        with _Briefly() as briefly:
            reference = load_reference(code, entry_point, "meta")
            init, model, call = reference.init_call(0), reference.new(0), reference.inputs(0)
            with counter:
                outputs = reference.run_in_place(model, call).leaves
    except BadReference:  # it reads a number, asks for another device, or takes too long
        return None
    tensors = [*call.tensors(), *model.state_dict().values(), *outputs]
    size = sum(t.numel() * t.element_size() for t in tensors)
    elements = [t.numel() for t in tensors]
    return OwnSize(init, call, counter.work, briefly.flops, size, sum(elements), max(elements, default=1))
