"""The right answer to a call, and comparisons between runs of a reference."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from kernelmill.evaluate.task.chunked import chunks, identical, rms
from kernelmill.evaluate.task.float64 import upcast, wide_of
from kernelmill.evaluate.task.values import (
    Outputs,
)


@dataclass
class Answer:
    """The right answer to one call. `exact` has float64 leaves, `eager` leaves of the task's own types."""

    exact: Outputs
    eager: Outputs
    note: str = ""
    """Why `exact` is not from a float64 run; empty if it is."""


def changed_buffers(before: Any, after: Any) -> dict[str, torch.Tensor]:
    old = dict(before.named_buffers())
    new = dict(after.named_buffers())
    return {
        name: tensor.detach()
        for name, tensor in new.items()
        if not nn.parameter.is_lazy(tensor) and (name not in old or not same(old[name], tensor))
    }


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have the same type, shape and values, with NaN equal to NaN."""
    if nn.parameter.is_lazy(one) or one.shape != other.shape or one.dtype != other.dtype:
        return False
    return all(torch.equal(a, b) or torch.allclose(a, b, 0, 0, True) for _, (a, b) in chunks(one, other))


def as_exact(eager: Outputs) -> Outputs:
    return dataclasses.replace(eager, leaves=[upcast(leaf) for leaf in eager.leaves])


def dtype_of(outputs: Outputs) -> str:
    found = [leaf.dtype for leaf in outputs.leaves if leaf.is_floating_point() or leaf.is_complex()]
    return str(found[0]).removeprefix("torch.") if found else "eager"


def unlike(exact: Outputs, eager: Outputs) -> str:
    """Why the float64 result cannot replace the eager one; empty if it can."""
    if exact.structure != eager.structure:
        return f"the float64 run returns {exact.structure}, the eager one {eager.structure}"
    for path, wide, leaf in zip(eager.paths, exact.leaves, eager.leaves, strict=True):
        if wide.shape != leaf.shape:
            return f"{path} has shape {tuple(wide.shape)} in the float64 run, not {tuple(leaf.shape)}"
        if wide.dtype != wide_of(leaf.dtype):
            return f"{path} is {wide.dtype} in the float64 run".replace("torch.", "")
    return ""


def distance_of(answer: Answer) -> float:
    """The largest relative distance between eager and exact in a floating leaf, over finite elements."""
    worst = 0.0
    for wide, leaf in zip(answer.exact.leaves, answer.eager.leaves, strict=True):
        if leaf.is_floating_point() or leaf.is_complex():
            norms = [_norms(exact, upcast(eager)) for _, (exact, eager) in chunks(wide, leaf)]
            norm, away = torch.linalg.vector_norm(torch.stack(norms), dim=0).tolist() if norms else (0.0, 0.0)
            worst = max(worst, away / norm if norm else 0.0)
    return worst


def _norms(exact: torch.Tensor, eager: torch.Tensor) -> torch.Tensor:
    """The norm of `exact`, and the norm of its difference from `eager`."""
    finite = torch.isfinite(exact) & torch.isfinite(eager)
    kept = torch.where(finite, exact, 0.0)
    off = kept - torch.where(finite, eager, 0.0)
    return torch.stack([torch.linalg.vector_norm(kept), torch.linalg.vector_norm(off)])


def differ(one: Outputs, other: Outputs) -> bool:
    """Whether two results differ by more than the summation order of another thread can cause."""
    if one.structure != other.structure or len(one.leaves) != len(other.leaves):
        return True
    for a, b in zip(one.leaves, other.leaves, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return True
        if not a.is_floating_point() and not a.is_complex():
            if not identical(a, b):
                return True
        else:
            near = 1e-6 * rms(a)
            for _, (pa, pb) in chunks(a, b):
                if not torch.allclose(upcast(pa), upcast(pb), 1e-3, near, equal_nan=True):
                    return True
    return False
