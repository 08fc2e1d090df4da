"""Make the objects that every interpreted operation creates cheaper.

An operation of a kernel costs the interpreter tens of microseconds, nearly all of it for describing the
result: a block type with its shape, a tensor with its shape again, a table of dtypes. Here block types are
shared, and their shapes are computed once, and so are constants. Results do not change.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import triton.language as tl
from triton.runtime import interpreter as stock

semantic = stock.interpreter_semantic
_BLOCK_TYPES_KEPT = 4096

_block_type_init = tl.block_type.__init__
_CONSTANTS_KEPT = 4096
_COMMON = frozenset({"int32", "int64", "fp32", "fp64"})
_INT_BOUNDS = {"int32": 2**31, "int64": 2**63}

_stock_operands = type(semantic).binary_op_type_checking_impl
_stock_broadcast = type(semantic).broadcast_impl_value
_shared: dict[tuple[int, Any], Any] = {}
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


@functools.lru_cache(maxsize=_CONSTANTS_KEPT)
def _constant(value: float, dtype: Any) -> Any:
    return semantic.scalar_constant(value, dtype)


def _of_its_type(value: Any, dtype: Any) -> bool:
    """Whether a number beside a tensor of this type takes the tensor's type."""
    kind = type(value)
    if kind is int:
        bound = _INT_BOUNDS.get(dtype.name)
        return bound is None or -bound <= value < bound
    return kind is float and dtype.name not in _INT_BOUNDS


def _operands(self: Any, lhs: Any, rhs: Any, *how: Any, **more: Any) -> Any:
    """Operands of one common type need no conversion, and there is nothing to check."""
    tensor = tl.tensor
    if type(lhs) is tensor and lhs.dtype.name in _COMMON:
        if type(rhs) is tensor:
            if lhs.dtype.name == rhs.dtype.name:
                return self.broadcast_impl_value(lhs, rhs)
        elif _of_its_type(rhs, lhs.dtype):
            return self.broadcast_impl_value(lhs, _constant(rhs, lhs.dtype))
    elif type(rhs) is tensor and rhs.dtype.name in _COMMON and _of_its_type(lhs, rhs.dtype):
        return self.broadcast_impl_value(_constant(lhs, rhs.dtype), rhs)
    return _stock_operands(self, lhs, rhs, *how, **more)


def install() -> None:
    tl.block_type.__new__ = _block_type_new
    tl.block_type.__init__ = _initialised
    tl.tensor.__init__ = _tensor_init
    type(semantic).broadcast_impl_value = _broadcast
    type(semantic).binary_op_type_checking_impl = _operands
