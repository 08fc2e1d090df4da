"""`embedding_bag` as gathers and reductions, for which Inductor generates Triton.

Torch's own is a library kernel.

Each bag is reduced over all entries, with those of other bags masked. This needs no atomics and is
deterministic, but does more work than necessary when there are many bags.
"""

from __future__ import annotations

from typing import Any

import torch

_of_torch = torch.nn.functional.embedding_bag


def embedding_bag(
    input: Any, weight: Any, offsets: Any = None, max_norm: Any = None, norm_type: Any = 2.0,
    scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, per_sample_weights: Any = None,
    include_last_offset: bool = False, padding_idx: Any = None,
) -> Any:  # fmt: skip
    """Replace torch's `embedding_bag`. Parameter names are torch's, because torch passes them by keyword."""
    plain = max_norm is None and padding_idx is None and not input.is_floating_point()
    if not plain or (input.dim() == 1) != (offsets is not None):
        return _of_torch(
            input, weight, offsets, max_norm, norm_type, scale_grad_by_freq, mode, sparse, per_sample_weights,
            include_last_offset, padding_idx,
        )  # fmt: skip
    found = torch.nn.functional.embedding(input, weight)
    if per_sample_weights is not None:
        found = found * per_sample_weights.unsqueeze(-1)
    if offsets is None:
        return {"mean": found.mean, "sum": found.sum, "max": found.amax}[mode](1)
    return _reduced(found, offsets[:-1] if include_last_offset else offsets, offsets, mode)


def _reduced(found: Any, starts: Any, offsets: Any, mode: str) -> Any:
    """Reduce the rows `found` by bag.

    Bag n spans from `starts[n]` to the next of `offsets`; an empty bag is zero.
    """
    places = torch.arange(found.shape[0], device=found.device)
    bag = (offsets.unsqueeze(0) <= places.unsqueeze(1)).sum(1) - 1
    inside = bag.unsqueeze(0) == torch.arange(starts.shape[0], device=found.device).unsqueeze(1)
    count = inside.sum(1).unsqueeze(1)
    if mode == "max":
        most = torch.where(inside.unsqueeze(2), found.unsqueeze(0), float("-inf")).amax(1)
        return torch.where(count > 0, most, 0.0)
    total = torch.where(inside.unsqueeze(2), found.unsqueeze(0), 0.0).sum(1)
    return total / count.clamp(min=1) if mode == "mean" else total
