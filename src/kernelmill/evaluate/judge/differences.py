"""Describe where a wrong output is wrong: how many elements, by how much, and in which pattern.

`describe` returns a small record for a check: the shapes that were tried, the number of wrong elements, the
largest absolute error, the axes and tile boundaries that the wrong positions line up with, and a few
neighbouring values. It gives at most `SLICE` values and at most a sixteenth of an output, so that an output
cannot be copied from its records.

Works in chunks, like `tolerance`. Not covered: complex outputs, and indices that are judged by value
(`choices`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelmill.evaluate.judge.tolerance import Comparison, Policy, index_of, mismatches
from kernelmill.evaluate.task.values import Call
from kernelmill.evaluate.verdict import SLICE

VALUES = ("max_abs", "at", "expected", "got")
"""The fields of a description that hold values of the output."""
_PART = 16
_LONGEST_AXIS = 1 << 20
"""Wrong elements are not counted along a longer axis."""
_FULL = 0.9
"""Share of wrong elements above which all count as wrong: some are right by chance."""
_LEAST_TILE = 4
_MOST_INPUTS = 6


def describe(
    candidate: Any, exact: torch.Tensor, eager: torch.Tensor, found: Comparison, call: Call, policy: Policy
) -> dict[str, Any]:
    """Describe a failed comparison."""
    told: dict[str, Any] = {
        "inputs": [_form(t) for t in call.tensors()[:_MOST_INPUTS]],
        "output": _form(eager),
    }
    if found.status not in ("INCORRECT_NUMERICAL", "NONFINITE") or eager.is_complex() or not eager.numel():
        return told
    seen = _Seen(tuple(eager.shape))
    for start, bad, off in mismatches(candidate, exact, eager, found, policy):
        seen.add(start, bad, off)
    if not seen.wrong:
        return told
    told |= {"wrong": seen.wrong, "of": eager.numel(), "where": _where(seen)}
    if seen.most:  # zero if no wrong element is finite
        told["max_abs"] = seen.most
    count = min(SLICE, eager.numel() // _PART)
    if count > 1 and eager.dim():
        told |= _slice(candidate, exact, index_of(seen.first, eager.shape), count)
    return told


def _form(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _slice(candidate: torch.Tensor, exact: torch.Tensor, at: list[int], count: int) -> dict[str, Any]:
    """`count` neighbours along the last axis, starting at the first wrong element."""
    *row, start = at
    sides = [tensor[tuple(row)][start : start + count].double().tolist() for tensor in (exact, candidate)]
    return {"at": at, "expected": [_said(v) for v in sides[0]], "got": [_said(v) for v in sides[1]]}


def _said(value: float) -> float | str:
    """Six significant digits; NaN and infinity as text, which JSON lacks."""
    return float(f"{value:.6g}") if value - value == 0 else str(value)


@dataclass
class _Seen:
    """Counts of the wrong elements of an output."""

    shape: tuple[int, ...]
    wrong: int = 0
    first: int = 0
    last: int = 0
    most: float = 0.0
    counts: list[torch.Tensor | None] = field(default_factory=list)
    """For each axis, the number of wrong elements at each index; None for an axis that is too long."""

    def __post_init__(self) -> None:
        self.counts = [
            torch.zeros(size, dtype=torch.int64) if size <= _LONGEST_AXIS else None for size in self.shape
        ]

    @property
    def total(self) -> int:
        return int(torch.Size(self.shape).numel())

    def add(self, start: int, bad: torch.Tensor, off: torch.Tensor) -> None:
        places = bad.nonzero().reshape(-1) + start
        self.most = max(self.most, float(off.max()))
        if not places.numel():
            return
        self.first = self.first if self.wrong else int(places[0])
        self.last = int(places[-1])
        self.wrong += places.numel()
        for axis in reversed(range(len(self.shape))):
            size, counts = self.shape[axis], self.counts[axis]
            if counts is not None:
                counts += torch.bincount(places % size, minlength=size).cpu()
            places = places.div(size, rounding_mode="floor")


def _where(seen: _Seen) -> list[str]:
    """Phrases for what the wrong positions have in common."""
    if seen.wrong >= _FULL * seen.total:
        return ["everywhere"]
    run = seen.last - seen.first + 1
    end = "to the end" if seen.last == seen.total - 1 else f"to {seen.last}"
    flat = f"elements {seen.first} {end} in row-major order{_boundary(seen.first, seen.last, seen.total)}"
    explained, slabs = _slabs(seen)
    if 1 < seen.wrong == run and explained != seen.wrong:
        return [flat]
    if slabs:
        return slabs
    if seen.wrong > 1 and seen.wrong >= _FULL * run:
        return [flat]
    return list(_box(seen)) or ["scattered: no axis and no tile boundary"]


def _slabs(seen: _Seen) -> tuple[int, list[str]]:
    """The number of elements at indices where everything is wrong, and phrases for these indices.

    There are no phrases if these indices do not explain nearly all wrong elements.
    """
    full: dict[int, list[int]] = {}
    right = seen.total
    for axis, counts in enumerate(seen.counts):
        size = seen.shape[axis]
        if counts is not None and size > 1:
            found = (counts >= _FULL * seen.total / size).nonzero().reshape(-1).tolist()
            if 0 < len(found) < size:
                full[axis] = found
                right = right // size * (size - len(found))
    explained = seen.total - right
    if explained < _FULL * seen.wrong:
        return explained, []
    return explained, [
        f"axis {axis} (size {seen.shape[axis]}): {_indices(found, seen.shape[axis])}"
        for axis, found in full.items()
    ]


def _box(seen: _Seen) -> Iterator[str]:
    """Phrases for axes whose wrong elements are confined to a part of the indices."""
    for axis, counts in enumerate(seen.counts):
        size = seen.shape[axis]
        if counts is not None and size > 1:
            found = counts.nonzero().reshape(-1).tolist()
            if found[-1] - found[0] + 1 <= size // 2 or _period(found, size):
                yield f"only in axis {axis} (size {size}): {_indices(found, size)}"


def _indices(found: list[int], size: int) -> str:
    first, last = found[0], found[-1]
    if len(found) == 1:
        return f"index {first}{_boundary(first, last, size)}"
    if last - first + 1 == len(found):
        end = "to the end" if last == size - 1 else f"to {last}"
        return f"index {first} {end}{_boundary(first, last, size)}"
    if period := _period(found, size):
        inside = sorted({i % period for i in found})
        which = str(inside[0]) if len(inside) == 1 else f"{inside[0]} to {inside[-1]}"
        return f"every index i with i % {period} = {which}"
    return f"{len(found)} indices, the first {', '.join(map(str, found[:SLICE]))}"


def _period(found: list[int], size: int) -> int:
    """The smallest period, 3 or a power of two, with which the indices repeat; 0 if there is none."""
    held = set(found)
    for period in (2, 3, 4, 8, 16, 32, 64, 128, 256, 512, 1024):
        inside = sorted({i % period for i in found})
        if 2 * period > size:
            return 0
        whole = inside[-1] - inside[0] + 1 == len(inside) < period
        if whole and all((i in held) == (i % period in inside) for i in range(size)):
            return period
    return 0


def _boundary(first: int, last: int, size: int) -> str:
    """A phrase if a run of wrong positions begins or ends at a multiple of a power of two, as tiles do."""
    if first:
        tile = first & -first
        if tile < _LEAST_TILE:
            return ""
        partial = last == size - 1 and size - first < tile
        return f"; {first} is a multiple of {tile}{', the last tile is partial' if partial else ', a tile boundary'}"
    tile = (last + 1) & -(last + 1)
    return (
        f"; {last + 1} is a multiple of {tile}, a tile boundary"
        if tile >= _LEAST_TILE and last + 1 < size
        else ""
    )
