"""Looks at one emitted file by itself. It executes a stranger's code, so use it in a confined process and nowhere else."""

from __future__ import annotations

from typing import Any

from kernelmill.decompose.prove_build import Original
from kernelmill.decompose.prove_operations import tensors_in
from kernelmill.decompose.prove_record import shapes_of, varies
from kernelmill.decompose.prove_sizes import Shape, drawn_small
from kernelmill.decompose.prove_straight import straight_violations
from kernelmill.decompose.prove_trace import first_trace
from kernelmill.problems.module_file import where


def look(code: str, source: str) -> dict[str, Any]:
    """What an emitted file takes and gives at full size, which of its inputs are more than one number, and what it may not do; or why it
    does not run. `source` is the model's."""
    try:
        made = Original(code, None)
        run = first_trace(made)[1]
        shapes: list[Shape] = [tuple(t.shape) for t in tensors_in(run.given)]
        varied = _varied(made, shapes)
    except Exception as error:  # noqa: BLE001  a stranger's code may raise anything
        return {"error": where(error, "original.py")}
    return {
        "inputs": shapes_of(run.given),
        "outputs": shapes_of(run.output),
        "varied": varied,
        "made_with": list(map(repr, made.arguments())),
        "violations": [] if code == source else straight_violations(code, source),
    }


_FEW = 64
"""Whole numbers and truths may be equal by chance, so few of them tell nothing."""


def _varied(made: Original, shapes: list[Shape]) -> list[bool]:
    """Whether each input has more than one number in it."""
    given = drawn_small(made.inputs, shapes)
    if given is None:
        return [True] * len(shapes)
    return [
        varies(tensor) or tensor.numel() < (2 if tensor.is_floating_point() else _FEW)
        for tensor in tensors_in(given)
    ]
