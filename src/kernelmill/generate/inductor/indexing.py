"""`x[...]`, `copy_` and `contiguous` for tensors on the fake GPU.

The Python bindings of these require a device guard, which a build without CUDA does not have.
"""

from __future__ import annotations

from typing import Any

import torch

_real, _real_copy, _real_contiguous = (
    torch.Tensor.__getitem__,
    torch.Tensor.copy_,
    torch.Tensor.contiguous,
)


def copy_(x: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    if x.device.type != "cuda":
        return _real_copy(x, source, non_blocking)
    return torch.ops.aten.copy_.default(x, source, non_blocking)


def contiguous(x: torch.Tensor, memory_format: Any = torch.contiguous_format) -> torch.Tensor:
    if x.device.type != "cuda":
        return _real_contiguous(x, memory_format=memory_format)
    return torch.ops.aten.contiguous.default(x, memory_format=memory_format)


def getitem(x: torch.Tensor, index: Any) -> Any:
    if x.device.type != "cuda":
        return _real(x, index)
    parts = list(index) if isinstance(index, tuple) else [index]
    taken = sum(
        part.dim() if isinstance(part, torch.Tensor) and part.dtype == torch.bool else 1
        for part in parts
        if part is not None and part is not Ellipsis
    )
    if not any(part is Ellipsis for part in parts):
        parts.append(Ellipsis)
    aten, axis = torch.ops.aten, 0
    tensors: dict[int, torch.Tensor] = {}
    for part in parts:
        if part is None:
            x, axis = aten.unsqueeze.default(x, axis), axis + 1
        elif part is Ellipsis:
            axis += x.dim() - axis - (taken - _counted(parts, part))
        elif isinstance(part, slice):
            if part != slice(None):
                last = 2**63 - 1 if part.stop is None else part.stop
                x = aten.slice.Tensor(x, axis, part.start or 0, last, part.step or 1)
            axis += 1
        elif isinstance(part, torch.Tensor):
            tensors[axis] = part
            axis += part.dim() if part.dtype == torch.bool else 1
        elif isinstance(part, list):
            tensors[axis] = torch.tensor(part, device=x.device)
            axis += 1
        else:
            x = aten.select.int(x, axis, part)
    return aten.index.Tensor(x, [tensors.get(place) for place in range(max(tensors) + 1)]) if tensors else x


def _counted(parts: list[Any], end: Any) -> int:
    count = 0
    for part in parts:
        if part is end:
            break
        if part is not None:
            count += part.dim() if isinstance(part, torch.Tensor) and part.dtype == torch.bool else 1
    return count
