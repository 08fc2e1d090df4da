"""Measure the size of an original task without allocating it: run the reference on the meta device."""

from __future__ import annotations

import time
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from kernelmill.evaluate.task.reference import BadReference, load_reference

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


def own_bytes(code: str, entry_point: str | None) -> int | None:
    """Bytes of inputs, weights and outputs; None if the reference does not run on the meta device."""
    try:
        with _Briefly():
            reference = load_reference(code, entry_point, "meta")
            model, call = reference.new(0), reference.inputs(0)
            outputs = reference.run_in_place(model, call).leaves
    except BadReference:  # it reads a number, asks for another device, or takes too long
        return None
    return int(
        sum(t.numel() * t.element_size() for t in [*call.tensors(), *model.state_dict().values(), *outputs])
    )
