"""Make the objects that every interpreted operation creates cheaper.

An operation of a kernel costs the interpreter tens of microseconds, nearly all of it for describing the
result: a block type with its shape, a tensor with its shape again, a table of dtypes. Here block types are
shared, their shapes are computed once, and a scalar is broadcast to a block without a copy. Results do not
change.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as stock

semantic = stock.interpreter_semantic
_BLOCK_TYPES_KEPT = 4096

_block_type_init = tl.block_type.__init__
_stock_broadcast = type(semantic).broadcast_impl_value
_stock_np_dtype = stock._get_np_dtype
_shared: dict[tuple[int, Any], Any] = {}
_np_dtypes: dict[str, Any] = {}
_SCALAR_NUMEL = tl.constexpr(1)
_SCALAR_SHAPE = tl.core.tuple([])


def _block_type_new(cls: type, element_ty: Any, shape: Any) -> Any:
    # A shared block type keeps its element type alive, so the id remains valid.
    sizes = tuple(size.value if isinstance(size, tl.constexpr) else size for size in shape)
    key = (id(element_ty), sizes)
    found = _shared.get(key)
    if found is None:
        if len(_shared) >= _BLOCK_TYPES_KEPT:
            _shared.clear()
        found = object.__new__(cls)
        _block_type_init(found, element_ty, shape)
        found.tensor_shape = tl.core.tuple([tl.constexpr(size) for size in sizes])
        found.tensor_numel = tl.constexpr(math.prod(sizes))
        _shared[key] = found
    return found


def _initialised(self: Any, *args: Any) -> None:
    """Do nothing: everything was set when the shared object was created."""


def _tensor_init(self: Any, handle: Any, type: Any) -> None:
    self.handle = handle
    self.type = type
    if type.is_block():
        self.dtype = type.element_ty
        self.shape = type.tensor_shape
        self.numel = type.tensor_numel
    else:
        self.dtype = type.scalar
        self.shape = _SCALAR_SHAPE
        self.numel = _SCALAR_NUMEL


def _handle_init(self: Any, data: Any, dtype: Any, attr: Any = None) -> None:
    self.data = data
    self.dtype = dtype
    self.attr = {} if attr is None else attr


def np_dtype(dtype: Any) -> Any:
    """The NumPy dtype that holds a Triton dtype."""
    name = dtype.name
    found = _np_dtypes.get(name)
    if found is None:
        found = _stock_np_dtype(dtype)
        if not dtype.is_block() and not dtype.is_ptr():
            _np_dtypes[name] = found
    return found


def _splat(self: Any, ret_ty: Any, arg: Any) -> Any:
    # A view of one element with zero strides: as_strided without its checks.
    view = np.ndarray(tuple(ret_ty.shape), arg.data.dtype, arg.data, 0, (0,) * len(ret_ty.shape))
    return stock.TensorHandle(view, arg.dtype.scalar)


def _broadcast(self: Any, lhs: Any, rhs: Any) -> Any:
    left, right = lhs.type, rhs.type
    if left.is_block():
        if right.is_block():
            if left.shape is right.shape or list(left.shape) == list(right.shape):
                return lhs, rhs
            return _stock_broadcast(self, lhs, rhs)
        kind = tl.block_type(right, left.shape)
        return lhs, tl.tensor(self.builder.create_splat(kind, rhs.handle), kind)
    if right.is_block():
        kind = tl.block_type(left, right.shape)
        return tl.tensor(self.builder.create_splat(kind, lhs.handle), kind), rhs
    return lhs, rhs


def install() -> None:
    tl.block_type.__new__ = _block_type_new
    tl.block_type.__init__ = _initialised
    tl.tensor.__init__ = _tensor_init
    stock.TensorHandle.__init__ = _handle_init
    stock._get_np_dtype = np_dtype
    stock.InterpreterBuilder.create_splat = _splat
    type(semantic).broadcast_impl_value = _broadcast
