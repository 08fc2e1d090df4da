"""Nested arguments and results of calls: map the leaves of tuples, lists, dicts and slices; name a tensor's form.

Where only the tensors matter, use `torch_calls.tensors`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernelmill.torch_calls.tensors import dtype_of


def tree_map(tree: Any, change: Callable[[Any], Any]) -> Any:
    """The same structure with `change` applied to every leaf."""
    if isinstance(tree, list | tuple):
        made = [tree_map(item, change) for item in tree]
        if isinstance(tree, tuple):
            return tree._make(made) if hasattr(tree, "_make") else tuple(made)
        return made
    if isinstance(tree, dict):
        return {key: tree_map(item, change) for key, item in tree.items()}
    if isinstance(tree, slice):
        return slice(*(tree_map(item, change) for item in (tree.start, tree.stop, tree.step)))
    return change(tree)


def form_of(tensor: torch.Tensor) -> str:
    """`float32[2, 3]`"""
    return f"{dtype_of(tensor)}{list(tensor.shape)}"
