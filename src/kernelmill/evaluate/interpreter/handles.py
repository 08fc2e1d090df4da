"""What a value of a running kernel is: an array with one axis in front, the programs.

The data of a block of shape (64, 32) has the shape (p, 64, 32), that of a scalar the shape (p,). Here p is
the number of programs that run together, or 1 if the value is the same for all of them. Any other axis may
also have size 1 in the data while `shape` says more: the value is the same along that axis, and is computed
once. `full` expands those axes for operations that need each element.

A `Pointer` knows the storage it was computed from, and counts elements from a base address. So a lane that
runs off the end of one tensor into another is noticed, and loads and stores index an array.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as stock

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

_stock_np_dtype = stock._get_np_dtype
_np_dtypes: dict[str, Any] = {}
ADDRESS = np.dtype(np.uint64)


def np_dtype(dtype: Any) -> Any:
    """The NumPy dtype that holds a Triton dtype."""
    name = dtype.name
    found = _np_dtypes.get(name)
    if found is None:
        found = _stock_np_dtype(dtype)
        if not dtype.is_block() and not dtype.is_ptr():
            _np_dtypes[name] = found
    return found


class Handle:
    """A value of a kernel: replaces the stock interpreter's TensorHandle."""

    __slots__ = ("attr", "data", "dtype", "shape")

    def __init__(self, data: Array, dtype: Any, attr: Any = None, shape: Shape | None = None) -> None:
        self.data = data
        self.dtype = dtype
        self.attr = {} if attr is None else attr
        self.shape = data.shape[1:] if shape is None else shape

    def __bool__(self) -> bool:
        return bool(self.data.all())

    def get_element_ty(self) -> Any:
        dtype = self.dtype
        while hasattr(dtype, "element_ty"):
            dtype = dtype.element_ty
        return dtype

    def clone(self) -> Handle:
        return self  # nothing here changes a handle's data in place

    def set_attr(self, key: str, value: Any) -> None:
        self.attr[key] = value

    def moved(self, move: Callable[[Array], Array], shape: Shape) -> Handle:
        """The same elements in another arrangement: `move` rearranges the data."""
        return Handle(move(self.data), self.dtype.scalar, None, shape)


class Storage:
    """The memory of one tensor that a launch was given.

    `name` is the first argument that lies in it.
    """

    __slots__ = ("high", "low", "name", "views")

    def __init__(self, name: str, low: int, high: int) -> None:
        self.name, self.low, self.high = name, low, high
        self.views: dict[tuple[int, Any], View] = {}

    def view(self, base: int, dtype: Any) -> View:
        """The memory as an array of this type, aligned to `base`."""
        found = self.views.get((base, dtype))
        if found is None:
            width = dtype.itemsize
            first = -((base - self.low) // width)
            start = base + first * width
            count = max(0, (self.high - start) // width)
            found = View(memory_at(start, count, dtype), first, start - self.low)
            self.views[base, dtype] = found
        return found


class View(NamedTuple):
    """A storage as an array. Pointers count from their base, which may be inside: `first` is the number of the
    array's first element, zero or negative. `offset` is how many bytes of the storage are before it.
    """

    array: Array
    first: int
    offset: int


def memory_at(address: int, count: int, dtype: Any) -> Array:
    """The memory at an address as an array."""
    if not count:
        return np.empty(0, dtype=dtype)
    raw = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    return np.frombuffer(raw, dtype=dtype)


class Pointer(Handle):
    """A pointer whose storage is known: element `index` counted from the address `base`."""

    __slots__ = ("base", "index", "storage")

    def __init__(self, index: Array, dtype: Any, shape: Shape, base: int, storage: Storage) -> None:
        self.index, self.dtype, self.shape = index, dtype, shape
        self.base, self.storage = base, storage
        self.attr = {}

    @property
    def data(self) -> Array:  # type: ignore[override]
        """The addresses."""
        return (self.index * self.width + self.base).view(ADDRESS)

    @property
    def width(self) -> int:
        return int(np_dtype(self.get_element_ty()).itemsize)

    def moved(self, move: Callable[[Array], Array], shape: Shape) -> Pointer:
        return Pointer(move(self.index), self.dtype.scalar, shape, self.base, self.storage)

    def at(self, index: Array) -> Pointer:
        """A pointer of the same shape to other elements of the same storage."""
        return Pointer(index, self.dtype, self.shape, self.base, self.storage)

    def recast(self, dtype: Any) -> Handle:
        """This pointer as one to another type."""
        old, new = self.width, np_dtype(dtype.scalar.element_ty).itemsize
        if old == new:
            return Pointer(self.index, dtype.scalar, self.shape, self.base, self.storage)
        if self.index.size == 1:
            base = self.base + old * int(self.index.item())
            return Pointer(np.zeros_like(self.index), dtype.scalar, self.shape, base, self.storage)
        return Handle(self.data, dtype.scalar, None, self.shape)


def full(handle: Handle) -> Array:
    """The data with every axis at its full size, but for the programs' axis."""
    data, shape = handle.data, handle.shape
    return data if data.shape[1:] == shape else np.broadcast_to(data, (data.shape[0], *shape))


def contiguous(handle: Handle) -> Array:
    return np.ascontiguousarray(full(handle))


def tensor_of(data: Array, dtype: Any, shape: Shape | None = None) -> Any:
    """A language-level tensor for this data: a block, or a scalar if there is only the programs' axis."""
    shape = data.shape[1:] if shape is None else shape
    kind = tl.block_type(dtype, list(shape)) if shape else dtype
    return tl.core.tensor(Handle(data, dtype.scalar, None, shape), kind)


def install() -> None:
    stock.TensorHandle = Handle
    stock._get_np_dtype = np_dtype
