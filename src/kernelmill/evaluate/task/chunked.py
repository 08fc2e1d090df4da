"""Process large tensors in chunks, so that temporary memory stays small: a few MB on the CPU.

Chunks have at most `CHUNK` elements on the CPU and `CHUNK_ON_A_DEVICE` elsewhere, and come in row-major
order. Tensors of one shape are split at the same positions, whatever their strides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

CHUNK = 1 << 20
CHUNK_ON_A_DEVICE = 1 << 24


def chunk_size(tensor: torch.Tensor) -> int:
    return CHUNK if tensor.device.type == "cpu" else CHUNK_ON_A_DEVICE


def chunks(*tensors: torch.Tensor, size: int | None = None) -> Iterator[tuple[int, tuple[torch.Tensor, ...]]]:
    """Yield flat chunks of tensors of one shape, each with its start position.

    Empty tensors give no chunk.
    """
    yield from _chunks(list(tensors), size or chunk_size(tensors[0]), 0)


def _chunks(
    tensors: list[torch.Tensor], size: int, begin: int
) -> Iterator[tuple[int, tuple[torch.Tensor, ...]]]:
    count = tensors[0].numel()
    if count <= size or all(t.is_contiguous() for t in tensors):
        flat = [t.reshape(-1) for t in tensors]
        for start in range(0, count, size):
            yield begin + start, tuple(t[start : start + size] for t in flat)
        return
    rows = tensors[0].shape[0]
    row = count // rows
    step = max(1, size // row)
    for start in range(0, rows, step):
        parts = [t[start] if step == 1 else t[start : start + step] for t in tensors]
        yield from _chunks(parts, size, begin + start * row)


def identical(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors have the same type, shape and bits."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return all(torch.equal(_bits(pa), _bits(pb)) for _, (pa, pb) in chunks(a, b))


def _bits(chunk: torch.Tensor) -> torch.Tensor:
    # Not `contiguous()`: it keeps the stride of a one-element tensor, which `view` may reject.
    plain = chunk if chunk.stride(0) == 1 else chunk.clone(memory_format=torch.contiguous_format)
    return plain.view(torch.uint8)


def all_finite(tensor: torch.Tensor) -> bool:
    return all(bool(torch.isfinite(plain(chunk)).all()) for _, (chunk,) in chunks(tensor))


def plain(chunk: torch.Tensor) -> torch.Tensor:
    """Convert float8 to float32: torch defines no arithmetic on float8."""
    return chunk.float() if chunk.is_floating_point() and chunk.element_size() == 1 else chunk


def rms(tensor: torch.Tensor) -> float:
    """The root mean square, with non-finite numbers counted as zero."""
    if not tensor.numel():
        return 0.0
    squares = [
        (chunk.abs() if chunk.is_complex() else chunk).double().nan_to_num(0, 0, 0).square().sum()
        for _, (chunk,) in chunks(tensor)
    ]
    return float((torch.stack(squares).sum() / tensor.numel()).sqrt())


def close(a: torch.Tensor, b: torch.Tensor, rtol: float, atol: float, equal_nan: bool = False) -> bool:
    """torch.allclose in chunks, for tensors of one shape and type."""
    return all(torch.allclose(plain(pa), plain(pb), rtol, atol, equal_nan) for _, (pa, pb) in chunks(a, b))


def changed(
    tensor: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Apply the elementwise function `change` in chunks. The result has the same type, or `dtype`."""
    if tensor.numel() <= chunk_size(tensor):
        return change(tensor).to(dtype or tensor.dtype)
    new = torch.empty(tensor.shape, dtype=dtype or tensor.dtype, device=tensor.device)
    for _, (source, target) in chunks(tensor, new):
        target.copy_(change(source))
    return new
