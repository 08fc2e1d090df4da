"""Compare outputs that are indices of chosen elements: of a top-k, a sort, an argmax.

Where elements are equal, any of them is a right choice. So an index is judged by the value that it points to.
It is right if that value equals the one that the reference chose there, in eager's or in the oracle's
numbers, and if no row names a position twice. Any other index is wrong.

`Choosing` records what the reference chose from; `compare_leaf` judges one output with that. Values that a
computation has rounded are equal if they are within rounding error. Values that nothing has rounded (an
input) are equal only if they are identical.

Not covered, and compared exactly: a stable sort, which has one answer; indices of pooling and of running
maxima, where an equal value does not make a position right; indices that are used in further computation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernelmill.evaluate.judge.tolerance import IEEE, Comparison, Policy, compare, index_of, rule_for
from kernelmill.evaluate.task.chunked import chunk_size, identical
from kernelmill.evaluate.task.values import Outputs

_aten = torch.ops.aten
_WHOLE = {_aten.argmax.default: 1, _aten.argmin.default: 1}
"""The position of the axis argument; without it, the choice is over all elements.

The only result is the index.
"""
_ALONG = {
    _aten.topk.default: 2,
    _aten.sort.default: 1,
    _aten.sort.stable: 1,
    _aten.max.dim: 1,
    _aten.min.dim: 1,
    _aten.kthvalue.default: 2,
    _aten.median.dim: 1,
    _aten.nanmedian.dim: 1,
    _aten.mode.default: 1,
}
"""The position of the axis argument; without it, the last axis. The second result is the index."""
_SEVERAL = {_aten.topk.default, _aten.sort.default, _aten.sort.stable}
"""Operations that choose several positions of a row, each once. The others choose one."""


@dataclass
class Choice:
    """Positions along the axis `dim` of `source`, or in all of it if `dim` is None."""

    source: torch.Tensor
    dim: int | None
    several: bool
    index: torch.Tensor

    def rows(self, index: torch.Tensor) -> torch.Tensor:
        """Reshape indices of this choice's shape to (row, position)."""
        index = index.reshape(self.index.shape)
        if self.several and self.dim is not None:
            index = index.movedim(self.dim, -1)
            return index.reshape(-1, index.shape[-1])
        return index.reshape(-1, 1)

    def back(self, rows: torch.Tensor) -> torch.Tensor:
        """Undo `rows`: a flat tensor in the order of the indices."""
        if self.several and self.dim is not None:
            moved = self.index.movedim(self.dim, -1).shape
            return rows.reshape(moved).movedim(-1, self.dim).reshape(-1)
        return rows.reshape(-1)

    def values(self) -> torch.Tensor:
        """The source as (row, element), in the order of `rows`."""
        if self.dim is None:
            return self.source.reshape(1, -1)
        moved = self.source.movedim(self.dim, -1)
        return moved.reshape(-1, moved.shape[-1])


class Choosing(TorchDispatchMode):  # type: ignore[misc]
    """Records every choice that torch makes inside the context."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: list[tuple[Choice, int]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        made = func(*args, **kwargs)
        if func in _WHOLE or (func in _ALONG and not kwargs.get("stable")):
            self._note(func, args, kwargs, made)
        return made

    def _note(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], made: Any) -> None:
        source = args[0] if args else kwargs["self"]
        if source.is_inference() or not source.numel():  # inference tensors have no version counter
            return
        at = (_WHOLE | _ALONG)[func]
        dim = args[at] if len(args) > at else kwargs.get("dim", None if func in _WHOLE else -1)
        index = made if func in _WHOLE else made[1]
        dim = None if dim is None or not source.dim() else dim % source.dim()
        # Keep the tensors themselves: a view made in here does not notice writes to its base.
        self._seen.append((Choice(source, dim, func in _SEVERAL, index), source._version))

    def of(self, leaves: list[torch.Tensor]) -> dict[int, Choice]:
        """Map each output's position to the choice with the same numbers, whatever their shape and type."""
        found = {}
        for place, leaf in enumerate(leaves):
            if leaf.is_floating_point() or leaf.is_complex() or leaf.dtype == torch.bool or not leaf.numel():
                continue
            for choice, version in self._seen:
                # If the source was written to since, it no longer holds what was chosen from.
                if choice.source._version == version and _same_numbers(leaf, choice.index):
                    found[place] = choice
        return found


def _same_numbers(leaf: torch.Tensor, index: torch.Tensor) -> bool:
    if leaf.numel() != index.numel():
        return False
    return identical(leaf.reshape(-1).to(index.dtype), index.reshape(-1))


def compare_leaf(
    candidate: Any, exact: Outputs, eager: Outputs, place: int, policy: Policy = IEEE
) -> Comparison:
    """Run `tolerance.compare` for one output; if it is a choice and differs, judge it by value."""
    found = compare(candidate, exact.leaves[place], eager.leaves[place], policy)
    chosen = [outputs.choices[place] for outputs in (eager, exact) if place in outputs.choices]
    if found.ok or found.status != "INCORRECT_NUMERICAL" or not chosen:
        return found
    return _by_value(candidate, found, chosen[0], chosen[-1], policy)


def _by_value(
    candidate: torch.Tensor, found: Comparison, eager: Choice, exact: Choice, policy: Policy
) -> Comparison:
    bad = eager.back(torch.cat([~fine for fine in _fine(candidate, eager, exact, policy)]))
    wrong, total = int(bad.sum()), candidate.numel()
    if not wrong:
        return Comparison(True, detail="other places than the reference's, with equal values")
    place = index_of(int(bad.int().argmax()), candidate.shape)
    right = eager.index.reshape(candidate.shape)[tuple(place)].item()
    found.worst = {"index": place, "expected": right, "got": candidate[tuple(place)].item()}
    found.detail = f"{wrong} of {total} indices name places with other values, or a place twice"
    return found


def _fine(candidate: torch.Tensor, eager: Choice, exact: Choice, policy: Policy) -> Iterator[torch.Tensor]:
    """Yield whether each index is right, as (row, position), in chunks of rows."""
    named = eager.rows(candidate.detach().to(eager.index.device)).long()
    chosen = [(one.values(), one.rows(one.index).long()) for one in (eager, exact)]
    length = chosen[0][0].shape[-1]
    step = max(1, chunk_size(named) // length)
    for start in range(0, named.shape[0], step):
        part = slice(start, start + step)
        inside = (named[part] >= 0) & (named[part] < length)
        at = named[part].clamp(0, length - 1)
        pairs = [(values[part], index[part]) for values, index in chosen]
        fine = _as_close(at, *pairs[0], *pairs[1], policy)
        for values, index in pairs:
            fine |= _equal(values.gather(-1, at), values.gather(-1, index))
        in_order = named[part].sort(-1).values
        once = (in_order[:, 1:] != in_order[:, :-1]).all(-1, keepdim=True)
        yield fine & inside & once


def _equal(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (one == other) | ((one != one) & (other != other))


def _as_close(
    at: torch.Tensor,
    eager: torch.Tensor,
    eager_index: torch.Tensor,
    exact: torch.Tensor,
    exact_index: torch.Tensor,
    policy: Policy,
) -> torch.Tensor:
    """Whether rounding may have decided the choice.

    Only in rows where eager's values differ from the oracle's, and only between values within rounding error.
    """
    fine = at == exact_index
    if not eager.is_floating_point():
        return fine
    rule = rule_for(eager.dtype, policy)
    tiny = float(torch.finfo(torch.float32 if eager.element_size() == 1 else eager.dtype).tiny)
    wide = eager.double()
    off = torch.where(torch.isfinite(exact) & torch.isfinite(wide), (wide - exact).abs(), 0.0)
    rounded = (off > 0).any(-1, keepdim=True)
    got, wanted = exact.gather(-1, at), exact.gather(-1, exact_index)
    errors = off.gather(-1, at) + off.gather(-1, exact_index)
    size = torch.maximum(got.abs(), wanted.abs())
    allowed = rule.a * errors + rule.d * rule.eps * size + (tiny if tiny < 1e-30 else 0.0)
    near = ((got - wanted).abs() <= allowed) & torch.isfinite(size)
    return fine | (near & rounded)
