"""Track which value each tensor holds now, while views and in-place writes change tensors that share memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._mode_utils import no_dispatch

from kernelmill.decompose.record.fake import has_value
from kernelmill.decompose.record.tensor_literals import tensor_expression
from kernelmill.decompose.record.types import Op, Value
from kernelmill.torch_calls.tensors import tensors_in

INTEGER_DTYPES = ("int64", "int32", "int16", "int8", "uint8")
Inverse = Callable[[Op, Value, Value], tuple[str, tuple[Any, ...]] | None]
"""From the call that made a view, its value now and its base's value before: the call that updates the base."""


def _set_items(view: Op, now: Value, base: Value) -> tuple[str, tuple[Any, ...]]:
    return "torch.Tensor.__setitem__", (base, view.args[1], now)


def _reshape(view: Op, now: Value, base: Value) -> tuple[str, tuple[Any, ...]]:
    return "torch.Tensor.reshape", (now, base.shape)


def _same_method(view: Op, now: Value, base: Value) -> tuple[str, tuple[Any, ...]]:
    return f"torch.Tensor.{view.short}", (now, *view.args[1:])


def _same_attribute(view: Op, now: Value, base: Value) -> tuple[str, tuple[Any, ...]]:
    return f"torch.Tensor.{view.short}.__get__", (now, *view.args[1:])


def _transpose(view: Op, now: Value, base: Value) -> tuple[str, tuple[Any, ...]] | None:
    return None if view.kwargs else _same_method(view, now, base)


_SHAPING = ("view", "reshape", "flatten", "unflatten", "unsqueeze", "squeeze", "view_as", "reshape_as")
_INVERSES: dict[str, Inverse] = {
    "__getitem__": _set_items,
    **dict.fromkeys(_SHAPING, _reshape),
    "transpose": _transpose,
    "t": _same_method,
    "T": _same_attribute,
    "mT": _same_attribute,
}
"""How a write into a view changes its base, by the call that made the view."""


class AliasTracker:
    def __init__(self) -> None:
        self._known: dict[int, tuple[torch.Tensor, Value]] = {}
        """Holds the tensors, so that ids are not reused."""
        self._storages: dict[int, list[torch.Tensor]] = {}
        self._stale: set[int] = set()
        self._views: dict[int, tuple[torch.Tensor, Op]] = {}

    def __getitem__(self, tensor: torch.Tensor) -> Value:
        return self._known[id(tensor)][1]

    def value(self, tensor: torch.Tensor) -> Value | None:
        """The value that a tensor holds now; None if it is unknown."""
        known = self._known.get(id(tensor))
        return known[1] if known is not None else None

    def know(self, tensor: torch.Tensor, value: Value) -> None:
        self._known[id(tensor)] = tensor, value
        self._stale.discard(id(tensor))
        self._storages.setdefault(_storage(tensor), []).append(tensor)
        if has_value(tensor) and value.dtype in INTEGER_DTYPES:
            with no_dispatch():
                value.seen = tensor_expression(tensor.constant)

    def same_memory(self, tensor: torch.Tensor) -> Value | None:
        """Find the value of a tensor that aliases a known one without a torch call: `Variable(x)`."""
        for other in self._storages.get(_storage(tensor), []):
            if _geometry(other) == _geometry(tensor) and not self.is_stale(other):
                self.know(tensor, self[other])
                return self[tensor]
        return None

    def is_stale(self, tensor: torch.Tensor) -> bool:
        """Whether its memory was written through another tensor since its value was recorded."""
        return id(tensor) in self._stale

    def write(self, tensor: torch.Tensor) -> None:
        """Note a write: all other tensors with the same memory are stale."""
        others = (other for other in self._storages.get(_storage(tensor), []) if other is not tensor)
        self._stale.update(map(id, others))

    def note_view(self, tensor: torch.Tensor, base: torch.Tensor, op: Op) -> None:
        """Note that a call made a tensor of another one, if they share memory."""
        if tensor is not base and _storage(tensor) == _storage(base):
            self._views[id(tensor)] = base, op

    def undone_view(self, view: torch.Tensor) -> tuple[torch.Tensor, str, tuple[Any, ...]] | None:
        """The base of a view that was written, and the call that makes its new value; None if there is none."""
        if id(view) not in self._views:
            return None
        base, made_by = self._views[id(view)]
        inverse = _INVERSES.get(made_by.short)
        found = inverse(made_by, self[view], self[base]) if inverse is not None else None
        return (base, *found) if found is not None else None


def versions(tree: Any) -> dict[int, int]:
    """torch's version counters of all tensors, by id: a write in place increments them."""
    return {id(one): one._version for one in tensors_in(tree)}


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _geometry(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset()
