"""Examine one emitted file on its own. This executes untrusted code: use it only in a sandboxed process."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernelmill.decompose.prove.build import Original
from kernelmill.decompose.prove.op_recorder import ClaimOpRecorder, WholeSequences, shapes_of, varies
from kernelmill.decompose.prove.operations import tensors_in
from kernelmill.decompose.prove.rules.single_path import has_authors_classes, single_path_violations
from kernelmill.decompose.prove.sizes import Shape, drawn_small
from kernelmill.decompose.prove.trace import first_trace
from kernelmill.problems.module_file import where


def check_file(code: str, source: str) -> dict[str, Any]:
    """Run an emitted file at full size and check it.

    Returns its input and output shapes, which inputs hold more than one distinct number, the constructor's
    arguments, and what it does that it may not do; or the error if it does not run. `source` is the model's
    source.
    """
    try:
        made = Original(code, None)
        mode, run = first_trace(made)
        shapes: list[Shape] = [tuple(t.shape) for t in tensors_in(run.inputs)]
        varied = _varied(made, shapes) if code != source else [True] * len(shapes)
        violations = [] if code == source else single_path_violations(code, source)
        if mode == (True, False) and not has_authors_classes(code, source):
            violations += _elsewhere(made)
    except Exception as error:  # noqa: BLE001  untrusted code may raise anything
        return {"error": where(error, "original.py")}
    return {
        "inputs": shapes_of(run.inputs),
        "outputs": shapes_of(run.output),
        "varied": varied,
        "made_with": list(map(repr, made.arguments())),
        "violations": violations,
    }


_FEW = 64
"""Integers and booleans may be equal by chance, so smaller tensors of them prove nothing."""


def _varied(made: Original, shapes: list[Shape]) -> list[bool]:
    """Whether each input holds more than one distinct number."""
    given = drawn_small(made.inputs, shapes)
    if given is None:
        return [True] * len(shapes)
    return [
        varies(tensor) or tensor.numel() < (2 if tensor.is_floating_point() else _FEW)
        for tensor in tensors_in(given)
    ]


# --------------------------------------------------------------------------------------------- another device

_MAY_MIX = {"aten::copy_", "aten::_to_copy", "aten::index", "aten::index_put_", "aten::index_put"}


class OneDevice(TorchDispatchMode):  # type: ignore[misc]
    """Rejects operations on tensors of two devices, as a GPU would.

    A CPU scalar may be combined with any device. `meta` tensors enforce this only in some operations.
    """

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        places = {tensor.device.type for tensor in tensors_in((args, kwargs or {})) if tensor.dim()}
        if len(places) > 1 and func._schema.name not in _MAY_MIX:
            raise RuntimeError(f"{func._schema.name} gets tensors of {' and '.join(sorted(places))}")
        return func(*args, **(kwargs or {}))


def _elsewhere(made: Original) -> list[str]:
    """What fails on a device other than the CPU. `meta` stands in for it, because it needs no memory."""
    with torch.device("meta"):
        model = made.build().eval()
        args, kwargs = made.inputs()
    try:
        with OneDevice(), WholeSequences(ClaimOpRecorder({}), True):
            output = model(*args, **kwargs)
    except Exception as error:  # noqa: BLE001  untrusted code may raise anything
        if isinstance(error, NotImplementedError) or "on meta tensors" in str(error):
            return []  # a size depends on a tensor's value, which meta tensors do not have
        return [f"on another device it does not run: {where(error, 'original.py')}"]
    if any(tensor.dim() and tensor.device.type != "meta" for tensor in tensors_in(output)):
        return ["on another device its result is on the CPU"]
    return []
