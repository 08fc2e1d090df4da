"""Nested arguments and results of calls: list or map the leaves of tuples, lists, dicts and slices.

Also the form of a tensor, as messages name it.

Where only the tensors matter, use `torch_calls.tensors`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from kernelmill.torch_calls.tensors import dtype_of


def leaves(tree: Any) -> Iterator[Any]:
    """Everything in the structure that is not a container, in order."""
    if isinstance(tree, dict):
        tree = list(tree.values())
    elif isinstance(tree, slice):
        tree = (tree.start, tree.stop, tree.step)
    if isinstance(tree, list | tuple):
        for item in tree:
            yield from leaves(item)
    else:
        yield tree


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
