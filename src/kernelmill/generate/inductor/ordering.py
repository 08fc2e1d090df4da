"""Sorting (sort, topk, median, kthvalue) as ranks: for each element, how many others come before it.

Inductor calls torch's library for these where sizes are symbols. The work grows with the square of the axis,
so long axes are left to the library. The sort is stable: among equal elements, the earlier one comes first.
"""

from __future__ import annotations

from typing import Any

import torch

_LONGEST = 2048


def decompositions() -> dict[Any, Any]:
    aten = torch.ops.aten
    return {
        aten.topk.default: _topk,
        aten.sort.default: _sort,
        aten.sort.stable: lambda x, *, stable=None, dim=-1, descending=False: _sort(x, dim, descending),
        aten.argsort.default: _argsort,
        aten.median.dim: _median,
        aten.kthvalue.default: _kth,
    }


def _topk(x: Any, k: Any, dim: int = -1, largest: bool = True, ordered: bool = True) -> Any:
    if _too_long(x, dim):
        return NotImplemented
    values, places = _sort(x, dim, largest)
    return values.narrow(dim, 0, k), places.narrow(dim, 0, k)


def _argsort(x: Any, dim: int = -1, descending: bool = False) -> Any:
    return NotImplemented if _too_long(x, dim) else _sort(x, dim, descending)[1]


def _too_long(x: Any, dim: int) -> bool:
    """Whether the axis is too long at the problem's own sizes."""
    if x.dim() == 0:
        return True
    length = x.shape[dim]
    return bool((length.node.hint if isinstance(length, torch.SymInt) else length) > _LONGEST)


def _kth(x: Any, k: Any, dim: int = -1, keepdim: bool = False) -> Any:
    if _too_long(x, dim):
        return NotImplemented
    values, places = _sort(x, dim, False)
    found = values.narrow(dim, k - 1, 1), places.narrow(dim, k - 1, 1)
    return found if keepdim else tuple(one.squeeze(dim) for one in found)


def _median(x: Any, dim: int, keepdim: bool = False) -> Any:
    if x.dim() == 0:
        return NotImplemented
    return _kth(x, (x.shape[dim] + 1) // 2, dim, keepdim)


def _sort(x: Any, dim: int = -1, descending: bool = False) -> Any:
    if _too_long(x, dim):
        return NotImplemented
    x = x.movedim(dim, -1)
    place = torch.arange(x.shape[-1], device=x.device)
    one, other = x.unsqueeze(-1), x.unsqueeze(-2)
    before = other > one if descending else other < one
    if x.dtype.is_floating_point:  # NaN counts as the greatest
        none, others = one != one, other != other
        before = before | (others & ~none if descending else none & ~others)
        same = (other == one) | (none & others)
    else:
        same = other == one
    before = before | (same & (place < place.unsqueeze(-1)))
    rank = before.sum(-1)
    values = torch.zeros_like(x).scatter(-1, rank, x)
    places = (
        torch.zeros_like(rank, dtype=torch.int32).scatter(-1, rank, place.int().expand(rank.shape)).long()
    )
    return values.movedim(-1, dim), places.movedim(-1, dim)
