"""Disable fast paths of torch that say nothing about the model and hide what it does.

`replaced`, which does it, gives any module or class other attributes for a while.
"""

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

    def is_causal_mask(mask: Any, is_causal: bool | None = None, size: int | None = None) -> bool:
        return bool(is_causal)

    with (
        replaced(torch.inference_mode, __enter__=lambda self: None, __exit__=lambda self, *error: None),
        replaced(nn.modules.transformer, _detect_is_causal_mask=is_causal_mask),
        replaced(torch.jit._state._enabled, enabled=False),
    ):
        yield


def bypass_torch_function() -> contextlib.AbstractContextManager[None]:
    """Within this context, a composed function runs its own code instead of dispatching to the mode."""
    return replaced(F, has_torch_function=lambda _: False)


@contextlib.contextmanager
def replaced(owner: Any, **attributes: Any) -> Iterator[None]:
    """Within this context, a module or class has these attributes in place of its own."""
    plain = {name: getattr(owner, name) for name in attributes}
    for name, value in attributes.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in plain.items():
            setattr(owner, name, value)
