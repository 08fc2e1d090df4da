"""The tensors inside nested values: arguments and results of modules and of torch's functions.

A sparse tensor is a container of dense ones: its values, and where they are.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

_COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
_BY_ROWS = (torch.sparse_csr, torch.sparse_bsr)
LAYOUTS = {str(layout).removeprefix("torch."): layout for layout in (torch.sparse_coo, *_COMPRESSED)}
"""The sparse layouts, by name."""
_SPARSE = frozenset(LAYOUTS.values())
# Bound before untrusted code runs.
_layout, _size = torch.Tensor.layout.__get__, torch.Tensor.size
_indices, _values, _is_coalesced = torch.Tensor._indices, torch.Tensor._values, torch.Tensor.is_coalesced
_values_of_compressed = torch.Tensor.values
_of_rows = torch.Tensor.crow_indices, torch.Tensor.col_indices
_of_columns = torch.Tensor.ccol_indices, torch.Tensor.row_indices
_new_coo, _new_compressed = torch.sparse_coo_tensor, torch.sparse_compressed_tensor
_LEAVES = frozenset({int, float, bool, str, type(None), torch.dtype, torch.device})


class Sparse(NamedTuple):
    """The parts of a sparse tensor."""

    layout: str
    size: tuple[int, ...]
    coalesced: bool
    places: tuple[Any, ...]
    values: Any

    def assembled(self) -> torch.Tensor:
        """The sparse tensor. Whether the places are within its size is not checked."""
        parts, unchecked = (*self.places, self.values, self.size), {"check_invariants": False}
        if self.layout == "sparse_coo":
            return _new_coo(*parts, is_coalesced=self.coalesced, **unchecked)
        return _new_compressed(*parts, layout=LAYOUTS[self.layout], **unchecked)


def is_sparse(value: Any) -> bool:
    return type(value) in (torch.Tensor, torch.nn.Parameter) and _layout(value) in _SPARSE


def parts_of(tensor: torch.Tensor) -> Sparse:
    """The parts of a sparse tensor. They share its memory. No mode sees that they are taken."""
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
        layout = _layout(tensor)
        name, size = str(layout).removeprefix("torch."), tuple(_size(tensor))
        if layout == torch.sparse_coo:
            return Sparse(name, size, bool(_is_coalesced(tensor)), (_indices(tensor),), _values(tensor))
        ways = _of_rows if layout in _BY_ROWS else _of_columns
        places = tuple(way(tensor) for way in ways)
        return Sparse(name, size, False, places, _values_of_compressed(tensor))


def apart(value: Any) -> Any:
    """The value with `Sparse` in place of each sparse tensor."""
    return map_tensors(value, lambda tensor: parts_of(tensor) if is_sparse(tensor) else tensor)


def assembled(value: Any) -> Any:
    """The value with sparse tensors made of their parts: what `apart` was given."""
    if isinstance(value, Sparse):
        return value.assembled()
    if isinstance(value, dict):
        return _dict_like(value, {key: assembled(item) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return _list_like(value, [assembled(item) for item in value])
    return value


def tensors_in(value: Any, fields: bool = False) -> list[torch.Tensor]:
    """The tensors inside lists, tuples and dictionaries, in order; with `fields` also inside dataclasses."""
    found: list[torch.Tensor] = []
    _collect(value, fields, found)
    return found


def _collect(value: Any, fields: bool, found: list[torch.Tensor]) -> None:
    if isinstance(value, torch.Tensor):
        if is_sparse(value):
            _collect(parts_of(value), fields, found)
        else:
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
        return _dict_like(value, {key: map_tensors(item, change, other) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return _list_like(value, [map_tensors(item, change, other) for item in value])
    return other(value)


def _dict_like(value: dict[Any, Any], items: dict[Any, Any]) -> dict[Any, Any]:
    """A dictionary of the same kind with other items."""
    if type(value) is dict:
        return items
    same_kind = copy.copy(value)
    same_kind.update(items)
    return same_kind


def _list_like(value: list[Any] | tuple[Any, ...], parts: list[Any]) -> Any:
    """A list or tuple of the same kind with other parts."""
    if isinstance(value, list):
        return parts
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
