"""Blocks rearranged: splat, broadcast, reshape, transpose, join, gather, histogram, casts of pointers.

An axis that a value is only repeated along stays of size 1 in the data (see `handles`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as stock

from kernelmill.evaluate.interpreter.handles import Array, Handle, Pointer, full, np_dtype
from kernelmill.evaluate.interpreter.programs import Deferred, group

Builder = stock.InterpreterBuilder


def _splat(self: Any, ret_ty: Any, arg: Any) -> Any:
    shape = tuple(ret_ty.shape)
    group.check_size(shape)
    ones = (1,) * len(shape)
    return arg.moved(lambda data: data.reshape(data.shape[0], *ones), shape)


def _unsplat(self: Any, arg: Any) -> Any:
    return arg.moved(lambda data: data.reshape(data.shape[0]), ())


def _reshape(self: Any, arg: Any, shape: Any, allow_reorder: Any) -> Any:
    old, new = arg.shape, tuple(shape)

    def move(data: Array) -> Array:
        programs = data.shape[0]
        if data.size == programs:
            return data.reshape(programs, *(1,) * len(new))
        return np.broadcast_to(data, (programs, *old)).reshape(programs, *new)

    return arg.moved(move, new)


def _trans(self: Any, arg: Any, perm: Any) -> Any:
    axes = [0, *(1 + axis for axis in perm)]
    return arg.moved(lambda data: data.transpose(axes), tuple(arg.shape[axis] for axis in perm))


def transposed(tensor: Any) -> Any:
    """`tensor.T`: all axes in reverse order, as NumPy does it."""
    shape = list(tensor.type.shape)[::-1]
    handle = _trans(None, tensor.handle, range(len(shape) - 1, -1, -1))
    return tl.core.tensor(handle, tl.core.block_type(tensor.dtype, shape))


def _expand_dims(self: Any, arg: Any, axis: int) -> Any:
    shape = list(arg.shape)
    axis = axis if axis >= 0 else axis + len(shape) + 1
    shape.insert(axis, 1)
    return arg.moved(lambda data: np.expand_dims(data, 1 + axis), tuple(shape))


def _broadcast(self: Any, arg: Any, shape: Any) -> Any:
    group.check_size(shape)
    return arg.moved(lambda data: data, tuple(shape))


def _together(*arrays: Array) -> list[Array]:
    """The arrays, all with the same number of programs."""
    programs = max(item.shape[0] for item in arrays)
    return [
        item if item.shape[0] == programs else np.broadcast_to(item, (programs, *item.shape[1:]))
        for item in arrays
    ]


def _cat(self: Any, lhs: Any, rhs: Any) -> Any:
    data = np.concatenate(_together(full(lhs), full(rhs)), axis=1)
    return Handle(data, lhs.dtype.scalar)


def _join(self: Any, lhs: Any, rhs: Any) -> Any:
    data = np.stack(np.broadcast_arrays(lhs.data, rhs.data), axis=-1)
    return Handle(data, lhs.dtype.scalar, None, (*lhs.shape, 2))


def _split(self: Any, val: Any) -> Any:
    data = val.data
    last = data.shape[-1] - 1  # 0 if both halves are the same
    return tuple(Handle(data[..., at], val.dtype.scalar, None, val.shape[:-1]) for at in (0, last))


def _gather(self: Any, src: Any, indices: Any, axis: int) -> Any:
    axis = axis % len(src.shape)
    data, at = _together(full(src), full(indices))
    data = np.take_along_axis(data, at, axis=1 + axis)
    return Handle(data, src.dtype.scalar)


def _histogram(self: Any, data: Any, bins: int, mask: Any) -> Any:
    """Count the values from 0 to `bins`, of each program on its own; others are not counted."""
    numbers = full(data)
    on = np.ones((1, *data.shape), dtype=bool) if mask is None else full(mask)
    numbers, on = _together(numbers, on)
    programs = numbers.shape[0]
    on = on & (numbers >= 0) & (numbers < bins)
    first = np.arange(programs, dtype=np.int64).reshape(-1, *(1,) * len(data.shape)) * bins
    counted = np.bincount((numbers + first)[on], minlength=programs * bins)
    return Handle(counted.reshape(programs, bins).astype(np.int32), tl.int32)


def _make_range(self: Any, ret_ty: Any, start: int, stop: int) -> Any:
    group.check_size((stop - start,))
    return Handle(np.arange(start, stop, dtype=np.int32)[None], tl.int32)


def _select(self: Any, cond: Any, lhs: Any, rhs: Any) -> Any:
    if isinstance(lhs, Pointer) and isinstance(rhs, Pointer):
        if lhs.storage is rhs.storage and lhs.base == rhs.base:
            return lhs.at(np.where(cond.data, lhs.index, rhs.index))
        if math.prod(cond.data.shape[1:]) == 1:
            return lhs if group.one(cond.data) else rhs
    for side in (lhs, rhs):
        if isinstance(side, Deferred):
            return side
    dtype = rhs.dtype.scalar
    result = np.where(cond.data, lhs.data, rhs.data)
    wanted = np_dtype(dtype)
    if result.dtype != wanted:
        result = result.astype(wanted)
    return Handle(result, dtype, None, cond.shape if len(cond.shape) >= len(rhs.shape) else rhs.shape)


def _bitcast(self: Any, src: Any, dst_type: Any) -> Any:
    target = dst_type.scalar
    if isinstance(src, Deferred):
        return src
    if isinstance(src, Pointer) and target.is_ptr():
        return src.recast(target)
    return Handle(src.data.view(np_dtype(target)), target, None, src.shape)


def install() -> None:
    Builder.create_splat = _splat
    Builder.create_unsplat = _unsplat
    Builder.create_reshape = _reshape
    Builder.create_trans = _trans
    Builder.create_expand_dims = _expand_dims
    Builder.create_broadcast = _broadcast
    Builder.create_cat = _cat
    Builder.create_join = _join
    Builder.create_split = _split
    Builder.create_gather = _gather
    Builder.create_histogram = _histogram
    Builder.create_make_range = _make_range
    Builder.create_select = _select
    Builder.create_bitcast = _bitcast
    Builder.create_ptr_to_int = _bitcast
