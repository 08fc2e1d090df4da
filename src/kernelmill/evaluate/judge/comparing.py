"""Compare a candidate's answer to a call with the reference's, output by output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from kernelmill.evaluate.judge.choices import compare_leaf
from kernelmill.evaluate.judge.recording import Recording
from kernelmill.evaluate.judge.tolerance import (
    Comparison,
    Policy,
    compare_scalars,
    differing,
    is_scalar,
    kb_compat,
    lost_slice,
)
from kernelmill.evaluate.task.answers import Answer
from kernelmill.evaluate.task.values import Outputs
from kernelmill.evaluate.verdict import Status

_WORST_LAST: tuple[Status, ...] = ("INCORRECT_NUMERICAL", "NONFINITE", "INCORRECT_SHAPE", "INCORRECT_DTYPE")

TIES_APART = 4.0
"""Roundings of the inputs within which an element is at a tie: those of a quotient and of a product by the inverse."""
_ROUNDINGS = 24
"""Other roundings that are tried. Each moves an element at a tie about every second time."""
_MOST_LOOKED_AT = 1 << 26
"""Elements of outputs in which ties are looked for: of more, the copies may not fit into the memory."""
_FIRST_ROUNDINGS = 6
"""If these show no tie, there is none."""
_AT_TIES = 0.02
"""The largest share of the elements that may be at ties."""


@dataclass
class Returned:
    """A candidate's answer to a call. `outputs` is None if the call failed or its result cannot be sent."""

    outputs: Outputs | None
    trouble: str
    reply: dict[str, Any]
    seconds: float
    recording: Recording | None = None
    """The call as a program, if that was asked for."""

    @property
    def all_launched(self) -> list[dict[str, Any]]:
        """Launches that ran at least one program, of whatever kernel."""
        return [launch for launch in self.reply["observed"]["launches"] if launch["programs"]]

    @property
    def launched(self) -> list[dict[str, Any]]:
        """Launches of the candidate's own kernels that ran at least one program."""
        return [launch for launch in self.all_launched if launch["own"]]


def compare_outputs(
    returned: Returned, answer: Answer, policy: Policy, constant: set[int], lenient: bool = True
) -> Comparison:
    """Compare all outputs of a call with the right ones.

    `constant` has the positions of outputs that never change: of these no value is reported. If `lenient`,
    an output of few numbers is rejected only if it is far off.
    """
    if returned.outputs is None:
        return Comparison(False, "INCORRECT_DTYPE", detail=returned.trouble)
    eager, exact = answer.eager, answer.exact
    got = returned.outputs
    if got.structure != eager.structure:
        return Comparison(
            False,
            "INCORRECT_SHAPE",
            detail=f"returned {got.structure[:200]}, expected {eager.structure[:200]}",
        )
    found = []
    for place, (path, leaf) in enumerate(zip(eager.paths, got.leaves, strict=True)):
        one = compare_leaf(leaf, exact, eager, place, policy)
        found.append((path, _lenient(one, eager.leaves[place]) if lenient else one))
    wrong = [(path, one) for path, one in found if not one.ok]
    if not wrong:
        return max((one for _, one in found), key=lambda one: one.relL2_eps or 0.0, default=Comparison(True))
    path, worst = max(wrong, key=lambda one: _WORST_LAST.index(one[1].status or "INCORRECT_NUMERICAL"))
    worst.place = eager.paths.index(path)
    if worst.place in constant:  # report no value: a candidate could copy it
        worst.worst = {}
        if worst.status == "NONFINITE":
            worst.detail = "NaN or infinity where the reference has none, or the other way round"
    if worst.worst:
        worst.worst = {"output": path} | worst.worst
    worst.detail = f"{path}: {worst.detail}" if len(found) > 1 else worst.detail
    return worst


def right_but_for_ties(
    returned: Returned, answer: Answer, policy: Policy, nudged: Callable[[int], Outputs]
) -> bool:
    """Whether what is wrong are a few elements that jump when the inputs are rounded otherwise: `sign`, `round(x / scale)`.

    Each has to be what the function gives for such inputs, exactly or in the task's own arithmetic. `nudged` gives its
    outputs for some, by number.
    """
    got = returned.outputs
    if got is None or got.structure != answer.eager.structure:
        return False
    if sum(leaf.numel() for leaf in answer.eager.leaves) > _MOST_LOOKED_AT:
        return False
    mine, off = list(got.leaves), dict[int, torch.Tensor]()

    def right(place: int) -> bool:
        one = compare_leaf(mine[place], answer.exact, answer.eager, place, policy)
        return _lenient(one, answer.eager.leaves[place]).ok

    for place, (exact, eager) in enumerate(zip(answer.exact.leaves, answer.eager.leaves, strict=True)):
        if right(place):
            continue
        if place in answer.eager.choices or not _alike(mine[place], eager):
            return False
        off[place] = differing(mine[place], exact, policy) & differing(mine[place], eager, policy)
        if not 0 < int(off[place].sum()) <= max(1.0, _AT_TIES * eager.numel()):
            return False
    left = sum(int(wrong.sum()) for wrong in off.values())
    for number in range(_ROUNDINGS):
        if number == _FIRST_ROUNDINGS and left == sum(int(wrong.sum()) for wrong in off.values()):
            return False
        other = nudged(number)
        for place, wrong in off.items():
            if not place < len(other.leaves) or other.leaves[place].shape != wrong.shape:
                continue  # how many numbers there are follows from the inputs, too
            near = wrong & ~differing(mine[place], other.leaves[place], policy)
            mine[place] = torch.where(near, answer.exact.leaves[place].to(mine[place]), mine[place])
            wrong &= ~near
        if not any(bool(wrong.any()) for wrong in off.values()):
            return all(map(right, off))
    return False


def _alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    return bool(one.shape == other.shape and one.dtype == other.dtype)


def slices_compared(returned: Returned, answer: Answer) -> Comparison:
    """Look at every slice of outputs that are right as a whole."""
    assert returned.outputs is not None
    leaves = zip(returned.outputs.leaves, answer.exact.leaves, answer.eager.leaves, strict=True)
    for place, (got, exact, eager) in enumerate(leaves):
        if place not in answer.eager.choices and (lost := lost_slice(got, exact, eager)):
            where = f"{answer.eager.paths[place]}: " if len(answer.eager.paths) > 1 else ""
            return Comparison(False, "INCORRECT_NUMERICAL", detail=f"{where}{lost}", place=place)
    return Comparison(True)


def compare_over_seeds(results: list[tuple[Returned, Answer]], policy: Policy) -> Comparison | None:
    """Compare outputs of one or few numbers over all seeds together; None if there are none."""
    first = results[0][1].eager
    for place, leaf in enumerate(first.leaves):
        if not (is_scalar(leaf) and leaf.is_floating_point()):
            continue
        columns = [
            (r.outputs.leaves[place], a.exact.leaves[place], a.eager.leaves[place])
            for r, a in results
            if r.outputs is not None and len(r.outputs.leaves) == len(a.eager.leaves)
        ]
        found = compare_scalars(columns, policy)
        if not found.ok or place == len(first.leaves) - 1:
            return found
    return None


def _lenient(found: Comparison, eager: torch.Tensor) -> Comparison:
    """Reject a single number only if it is far off: its rounding may be bad luck.

    `compare_over_seeds` decides over all seeds.
    """
    if (
        found.ok
        or found.status != "INCORRECT_NUMERICAL"
        or not is_scalar(eager)
        or not eager.is_floating_point()
    ):
        return found
    if (found.elem_eps or 0.0) < (64 if eager.element_size() <= 2 else 1e4):
        found.ok, found.status = True, None
    return found


def kernelbench_agrees(returned: Returned, answer: Answer, tolerance: float) -> bool:
    """Whether KernelBench's own comparison accepts the outputs."""
    got = returned.outputs
    if got is None or len(got.leaves) != len(answer.eager.leaves):
        return False
    pairs = zip(got.leaves, answer.eager.leaves, strict=True)
    return all(kb_compat(c, e, tolerance) for c, e in pairs)
