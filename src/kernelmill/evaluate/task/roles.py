"""Infer the role of each input tensor from the task's own draws: data, an index, a mask, a probability."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

from kernelmill.evaluate.task.chunked import chunks
from kernelmill.evaluate.task.values import PLACES, Call

_NO_CHANCE = 3.0
"""So many equal pairs are to be expected among random numbers: there being none says something."""
Kind = Literal["data", "index", "mask", "probability", "fixed", "other"]


@dataclass
class Role:
    """The role of one input tensor.

    Its values lie between `low` and `high`, unless it is `fixed` or `other`.
    """

    path: str
    kind: Kind
    low: float = 0.0
    high: float = 0.0
    signed: bool = True
    """Data may be negative. Assumed until `settle_signs` finds otherwise."""
    zeros: torch.Tensor | None = None
    symmetric: bool = False
    ordered: bool = False
    permutation: bool = False
    unique: bool = False
    """No index occurs twice: slots of a cache, a part of a permutation."""
    sentinel: int | None = None
    """A negative number among indices that are not: the target that a loss ignores."""


def roles(draws: list[Call]) -> list[Role]:
    """Infer each tensor's role, in the order of `Call.leaves`, from several draws of the task's inputs."""
    columns = zip(*(call.leaves() for call in draws), strict=True)
    found = []
    for column in columns:
        path, values = column[0][0], [value for _, value in column]
        if PLACES in path:
            found.append(Role(path, "fixed"))
        elif isinstance(values[0], torch.Tensor):
            found.append(_role(path, [v.detach() for v in values]))
    return found


def _role(path: str, values: list[torch.Tensor]) -> Role:
    first = values[0]
    if any(v.dtype != first.dtype for v in values) or not all(v.numel() for v in values):
        return Role(path, "fixed")
    if any(v.shape != first.shape for v in values):
        return _of_many_shapes(path, values)
    if first.dtype == torch.bool:
        return Role(path, "mask", 0, 1)
    if first.is_complex():
        return Role(path, "other")
    if first.is_floating_point() and first.element_size() == 1:
        return Role(path, "fixed")  # torch computes nothing in float8: its values are the task's own
    same = all(torch.equal(first, v) for v in values[1:])
    low, high = min(float(v.min()) for v in values), max(float(v.max()) for v in values)
    if not first.is_floating_point():
        if same and len(values) > 1 and not _is_permutation(first):
            return Role(path, "fixed")
        sentinel = _sentinel(values)
        if sentinel is not None:
            low = min(float(v[v != sentinel].min()) for v in values)
        permuted = all(_is_permutation(v) for v in values)
        return Role(
            path, "index", low, high, permutation=permuted, unique=_is_unique(values), sentinel=sentinel
        )
    if not _each(values, lambda v: torch.isfinite(v.double())):
        return Role(path, "fixed")
    binary = low >= 0 and high <= 1 and _each(values, lambda v: (v == 0) | (v == 1))
    if low >= 0 and _sums_to_one(values):
        return Role(path, "probability", low, high)
    if binary:
        return Role(path, "mask", 0, 1)
    zeros = first == 0
    for v in values[1:]:
        zeros &= v == 0
    return Role(
        path,
        "data",
        low,
        high,
        zeros=zeros if bool(zeros.any()) and not bool(zeros.all()) else None,
        symmetric=_is_symmetric(values),
        ordered=first.dim() > 0 and first.shape[-1] > 4 and all(map(_is_ordered, values)),
    )


def _of_many_shapes(path: str, values: list[torch.Tensor]) -> Role:
    """Numbers whose number is drawn, too: values of a sparse tensor. What else they may be is not looked for."""
    finite = values[0].is_floating_point() and _each(values, lambda v: torch.isfinite(v.double()))
    if not finite or values[0].element_size() == 1:
        return Role(path, "fixed")
    return Role(path, "data", min(float(v.min()) for v in values), max(float(v.max()) for v in values))


def _each(values: list[torch.Tensor], holds: Callable[[torch.Tensor], torch.Tensor]) -> bool:
    return all(bool(holds(chunk).all()) for v in values for _, (chunk,) in chunks(v))


def _first_row(value: torch.Tensor) -> torch.Tensor:
    return value[(0,) * (value.dim() - 1)]


def _is_ordered(value: torch.Tensor) -> bool:
    # Check the first row first: it decides for most large tensors.
    return all(bool((v.diff(dim=-1) >= 0).all()) for v in (_first_row(value), value))


def _sums_to_one(values: list[torch.Tensor]) -> bool:
    if values[0].dim() == 0 or values[0].shape[-1] < 2:
        return False
    off = 1e-2 if values[0].element_size() == 2 else 1e-4
    looked_at = [*map(_first_row, values), *values]
    return all(bool(((v.double().sum(-1) - 1).abs() < off).all()) for v in looked_at)


def _is_permutation(value: torch.Tensor) -> bool:
    """Whether the values are 0 … n-1 in any order.

    A kernel may skip reading one that is always the identity.
    """
    if value.dim() != 1 or value.numel() < 3:
        return False
    return bool(torch.equal(value.sort().values.long(), torch.arange(value.numel(), device=value.device)))


def _sentinel(values: list[torch.Tensor]) -> int | None:
    """The one negative number among all others, if there is one."""
    negative = torch.cat([v[v < 0].unique() for v in values]).unique()
    some_are_not = all(bool((v >= 0).any()) for v in values)
    return (
        int(negative[0])
        if negative.numel() == 1 and some_are_not and values[0].dtype != torch.uint8
        else None
    )


def _is_unique(values: list[torch.Tensor]) -> bool:
    """Whether no number occurs twice in a draw, and that is no chance."""
    count, low, high = (
        values[0].numel(),
        min(int(v.min()) for v in values),
        max(int(v.max()) for v in values),
    )
    pairs = len(values) * count * (count - 1) / 2 / (high - low + 1)
    return pairs > _NO_CHANCE and all(v.unique().numel() == count for v in values)


def _is_symmetric(values: list[torch.Tensor]) -> bool:
    shape = values[0].shape
    if len(shape) < 2 or shape[-1] != shape[-2] or shape[-1] < 3:
        return False
    return all(torch.equal(v, v.transpose(-1, -2)) for v in values)
