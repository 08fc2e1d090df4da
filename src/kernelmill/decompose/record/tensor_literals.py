"""Write tensor values as expressions: masks, tables and positions of a model."""

from __future__ import annotations

import torch

from kernelmill.decompose.literals import constant

_LITERAL = 16
"""Tensors with up to this many elements are written out."""
_FROM_ZERO = 0.5
"""A parameter whose mean is closer to zero than this has no sign of its own."""


def tensor_expression(tensor: torch.Tensor) -> str | None:
    """An expression for a tensor that is not a parameter; None if any numbers of its shape will do."""
    shape, dtype = tuple(tensor.shape), tensor.dtype
    if not tensor.numel():
        return f"torch.empty({constant(shape)}, dtype={dtype})"
    typed = "" if dtype == torch.float32 else f", dtype={dtype}"
    if tensor.numel() <= _LITERAL and not dtype.is_complex:
        return f"torch.tensor({constant(tensor.tolist())}{typed})"
    first = tensor.flatten()[0].item()
    if bool((tensor == first).all()):
        return f"torch.full({constant(shape)}, {constant(first)}{typed})"
    if len(shape) > 1:
        for name in ("tril", "triu"):
            if bool((tensor == getattr(torch, name)(torch.ones(shape[-2:], dtype=dtype))).all()):
                square = f"torch.{name}(torch.ones({shape[-2]}, {shape[-1]}{typed}))"
                return square if len(shape) == 2 else f"{square}.expand({constant(shape)}).contiguous()"
        upper = torch.triu(torch.full(shape[-2:], float("-inf")), 1)
        if dtype.is_floating_point and bool((tensor == upper.to(dtype)).all()):
            return f'torch.triu(torch.full({constant(shape)}, float("-inf"){typed}), 1)'
    if dtype.is_complex:
        return None
    if dtype == torch.bool:
        return f"torch.rand({constant(shape)}) > 0.5"
    if bool((tensor.flatten() == torch.arange(tensor.numel(), dtype=dtype)).all()):
        return f"torch.arange({tensor.numel()}{typed}).view({constant(shape)})"
    if not dtype.is_floating_point:
        return f"torch.randint({int(tensor.min())}, {int(tensor.max()) + 1}, {constant(shape)}{typed})"
    if bool((tensor >= 0).all()) and bool(torch.isfinite(tensor).all()):
        most = float(tensor.max())
        return f"torch.rand({constant(shape)}{typed}) * {float(f'{most:.3g}')}"
    return None


def sign_of(tensor: torch.Tensor) -> int:
    """The sign of a parameter that starts away from zero (a scale of ones, the log of a rate); else 0."""
    if (
        not tensor.is_floating_point()
        or not tensor.numel()
        or abs(float(tensor.double().mean())) < _FROM_ZERO
    ):
        return 0
    return 1 if bool((tensor > 0).all()) else -1 if bool((tensor < 0).all()) else 0
