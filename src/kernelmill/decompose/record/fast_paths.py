"""Disable fast paths of torch that say nothing about the model and hide what it does."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


@contextlib.contextmanager
def without_fast_paths() -> Iterator[None]:
    """Disable three fast paths within this context.

    `torch.inference_mode` does nothing (gradients are off anyway). `nn.Transformer` does not check whether a
    mask is causal. Functions that are scripted here stay Python, which calls torch as the author wrote it.
    """
    scripting: Any = torch.jit._state._enabled
    mode: Any = torch.inference_mode
    transformer: Any = nn.modules.transformer
    scripted, scripting.enabled = scripting.enabled, False
    plain = mode.__enter__, mode.__exit__, transformer._detect_is_causal_mask
    mode.__enter__, mode.__exit__ = (lambda self: None), (lambda self, *error: None)
    transformer._detect_is_causal_mask = lambda mask, is_causal=None, size=None: bool(is_causal)
    try:
        yield
    finally:
        scripting.enabled = scripted
        mode.__enter__, mode.__exit__, transformer._detect_is_causal_mask = plain


@contextlib.contextmanager
def bypass_torch_function() -> Iterator[None]:
    """Within this context, a composed function runs its own code instead of dispatching to the mode."""
    names: Any = F
    plain = names.has_torch_function
    names.has_torch_function = lambda _: False
    try:
        yield
    finally:
        names.has_torch_function = plain
