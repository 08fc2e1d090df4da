"""Pooling for which Inductor would call torch's library, as a reduction over a view of the padded input."""

from __future__ import annotations

import math
from typing import Any

import torch

_MOST_UNROLLED = 25
"""Inductor unrolls windows of up to this many elements."""


def decompositions() -> dict[Any, Any]:
    aten = torch.ops.aten
    found: dict[Any, Any] = {}
    for rank in (1, 2, 3):
        average = getattr(aten, f"avg_pool{rank}d").default
        greatest = getattr(aten, f"max_pool{rank}d").default
        found |= {average: _average(rank), greatest: _greatest(rank)}
    found[aten.adaptive_avg_pool2d.default] = _adaptive
    return found


def _adaptive(x: Any, sizes: Any) -> Any:
    """Pool over windows of different sizes: a sum over the axis, masked to the window."""
    if all(type(size) is int and size == 1 for size in sizes):
        return NotImplemented
    for axis, size in zip((-1, -2), reversed(sizes), strict=True):
        x = x.movedim(axis, -1)
        count = x.shape[-1]
        out = torch.arange(size, device=x.device).unsqueeze(-1)
        place = torch.arange(count, device=x.device)
        first, last = out * count // size, ((out + 1) * count + size - 1) // size
        inside = (place >= first) & (place < last)
        x = torch.where(inside, x.unsqueeze(-2), 0.0).sum(-1) / (last - first).squeeze(-1)
        x = x.movedim(-1, axis)
    return x


def _average(rank: int) -> Any:
    def pool(
        x: Any,
        window: Any,
        stride: Any = (),
        padding: Any = (0,),
        ceil_mode: bool = False,
        count_padding: bool = True,
        divisor: Any = None,
    ) -> Any:
        window, stride, padding, wide = _lists(rank, window, stride, padding)
        if not wide or ceil_mode or (any(padding) and not count_padding):
            return NotImplemented
        total = _windows(x, window, stride, padding, [1] * rank, 0.0).sum(list(range(-rank, 0)))
        return total / (divisor or math.prod(window))

    return pool


def _greatest(rank: int) -> Any:
    def pool(
        x: Any,
        window: Any,
        stride: Any = (),
        padding: Any = (0,),
        dilation: Any = (1,),
        ceil_mode: bool = False,
    ) -> Any:
        window, stride, padding, wide = _lists(rank, window, stride, padding)
        if not wide or ceil_mode or not x.dtype.is_floating_point:
            return NotImplemented
        dilation = list(dilation) * (rank if len(dilation) == 1 else 1)
        return _windows(x, window, stride, padding, dilation, -math.inf).amax(list(range(-rank, 0)))

    return pool


def _lists(rank: int, *given: Any) -> tuple[list[int], list[int], list[int], bool]:
    window, stride, padding = (list(one) * (rank if len(one) == 1 else 1) for one in given)
    return window, stride or window, padding, math.prod(window) > _MOST_UNROLLED


def _windows(
    x: Any, window: list[int], stride: list[int], padding: list[int], dilation: list[int], outside: float
) -> Any:
    """Return a view of the padded input whose last axes are those within a window."""
    if any(padding):
        x = torch.nn.functional.pad(x, [pad for pad in reversed(padding) for _ in "ab"], value=outside)
    rank = len(window)
    first = x.dim() - rank
    for axis, (width, step, gap) in enumerate(zip(window, stride, dilation, strict=True), start=first):
        x = x.unfold(axis, (width - 1) * gap + 1, step)
        if gap != 1:
            x = x[..., ::gap]
    return x
