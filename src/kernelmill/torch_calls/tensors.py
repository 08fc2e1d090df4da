"""The tensors inside nested values: arguments and results of modules and of torch's functions."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import torch

_LEAVES = frozenset({int, float, bool, str, type(None), torch.dtype, torch.device})


def tensors_in(value: Any, fields: bool = False) -> list[torch.Tensor]:
    """The tensors inside lists, tuples and dictionaries, in order; with `fields` also inside dataclasses."""
    found: list[torch.Tensor] = []
    _collect(value, fields, found)
    return found


def _collect(value: Any, fields: bool, found: list[torch.Tensor]) -> None:
    if isinstance(value, torch.Tensor):
        found.append(value)
        return
    if isinstance(value, dict):
        value = value.values()
    elif fields and dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = vars(value).values()
    elif not isinstance(value, list | tuple):
        return
    for item in value:
        if type(item) not in _LEAVES:
            _collect(item, fields, found)


def dtype_of(tensor: torch.Tensor) -> str:
    """`float32`"""
    return str(tensor.dtype).removeprefix("torch.")


def map_tensors(
    value: Any, change: Callable[[torch.Tensor], Any], other: Callable[[Any], Any] = lambda value: value
) -> Any:
    """A copy of the value with every tensor in its lists, tuples and dictionaries changed.

    Everything else in them is replaced by `other` of it.
    """
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        items = {key: map_tensors(item, change, other) for key, item in value.items()}
        if type(value) is dict:
            return items
        same_kind = copy.copy(value)
        same_kind.update(items)
        return same_kind
    if isinstance(value, list | tuple):
        parts = [map_tensors(item, change, other) for item in value]
        if isinstance(value, list):
            return parts
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return other(value)
