"""The original task without its numbers: the reference runs on the meta device, so nothing is allocated."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from kernelmill.evaluate.judge.torch_work import TorchWork, TorchWorkCounter
from kernelmill.evaluate.task.reference import BadReference, load_reference
from kernelmill.evaluate.task.values import Call

_SECONDS = 0.5
"""Limit on processor time."""


class _Late(Exception):
    """The run exceeded `_SECONDS`, as long loops do."""


class _Briefly(TorchDispatchMode):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self._end = time.process_time() + _SECONDS

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if time.process_time() > self._end:
            raise _Late
        return func(*args, **(kwargs or {}))


@dataclass
class OwnSize:
    """A task at its own size. The tensors are on the meta device: shapes and types only."""

    init: Call
    call: Call
    work: TorchWork
    """The reference's work in one call."""
    bytes: int
    """Of inputs, weights and outputs."""
    elements: int
    largest: int
    """Elements of the largest of these tensors."""


def own_size(code: str, entry_point: str | None) -> OwnSize | None:
    """The task at its own size; None if the reference does not run on the meta device."""
    counter = TorchWorkCounter(keep=False)
    try:
        with _Briefly():
            reference = load_reference(code, entry_point, "meta")
            init, model, call = reference.init_call(0), reference.new(0), reference.inputs(0)
            with counter:
                outputs = reference.run_in_place(model, call).leaves
    except BadReference:  # it reads a number, asks for another device, or takes too long
        return None
    tensors = [*call.tensors(), *model.state_dict().values(), *outputs]
    size = sum(t.numel() * t.element_size() for t in tensors)
    elements = [t.numel() for t in tensors]
    return OwnSize(init, call, counter.work, size, sum(elements), max(elements, default=1))
