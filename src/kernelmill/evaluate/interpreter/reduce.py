"""tl.reduce and tl.associative_scan on whole arrays.

The stock interpreter calls the combine function once per element. Here the common combine functions are NumPy
reductions. Any other one is applied to halves of the array: a tree for a reduction, log2(n) shifted passes
for a scan. The order of operands is kept, so a function that is associative but not commutative gives the
correct result.

Sums of 16-bit floats round after every addition, as on a GPU, where the sum stays in the operands' type. A
combine function that branches on its values cannot run on arrays: it falls back to the element-wise path.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as stock

from kernelmill.evaluate.interpreter.language import BlockCondition
from kernelmill.evaluate.interpreter.numerics import Array
from kernelmill.evaluate.interpreter.speed import np_dtype

_generic_reduce = stock.ReduceOps.generic_reduce
_generic_scan = stock.ScanOps.generic_scan


def _tensor(data: Array, dtype: Any) -> Any:
    data = data.astype(np_dtype(dtype), copy=False)
    kind = tl.block_type(dtype, list(data.shape)) if data.ndim else dtype
    return tl.core.tensor(stock.TensorHandle(data if data.ndim else data.reshape(1), dtype.scalar), kind)


def _combine(combine_fn: Any, left: list[Array], right: list[Array], dtypes: list[Any]) -> list[Array]:
    operands = [
        _tensor(data, dtype) for side in (left, right) for data, dtype in zip(side, dtypes, strict=True)
    ]
    result = combine_fn.rewrite()(*operands)
    results = result if isinstance(result, (tuple, tl.core.tuple)) else (result,)
    shape = left[0].shape
    return [
        np.broadcast_to(stock.interpreter_semantic.to_tensor(item).handle.data, shape).astype(
            np_dtype(dtype), copy=False
        )
        for item, dtype in zip(results, dtypes, strict=True)
    ]


def _tree(combine_fn: Any, data: list[Array], dtypes: list[Any], axis: int) -> list[Array]:
    data = [np.moveaxis(item, axis, 0) for item in data]
    while data[0].shape[0] > 1:  # blocks have power of two sizes
        data = _combine(combine_fn, [d[0::2] for d in data], [d[1::2] for d in data], dtypes)
    return [item[0] for item in data]


def _direct(combine_fn: Any, data: list[Array], dtypes: list[Any], axis: int) -> list[Array] | None:
    """The reduction by NumPy itself, or None if NumPy lacks the combine function."""
    standard = tl.standard
    first = data[0]
    exact = dtypes[0].is_int() or dtypes[0].is_fp32() or dtypes[0].is_fp64()
    if combine_fn is standard._sum_combine and exact:
        return [np.add.reduce(first, axis=axis, dtype=first.dtype)]
    if combine_fn is standard._elementwise_max and exact:
        return [np.fmax.reduce(first, axis=axis)]
    if combine_fn is standard._elementwise_min and exact:
        return [np.fmin.reduce(first, axis=axis)]
    if combine_fn is standard._xor_combine:
        return [np.bitwise_xor.reduce(first, axis=axis)]
    largest = (standard._argmax_combine_tie_break_left, standard._argmax_combine_tie_break_fast)
    smallest = (standard._argmin_combine_tie_break_left, standard._argmin_combine_tie_break_fast)
    if exact and (combine_fn in largest or combine_fn in smallest):
        pick = np.argmax if combine_fn in largest else np.argmin
        where = np.expand_dims(pick(first, axis=axis), axis)
        return [np.take_along_axis(item, where, axis).squeeze(axis) for item in data]
    return None


def _reduce_impl(self: Any, inputs: tuple[Any, ...]) -> list[Any]:
    rank = max(1, inputs[0].handle.data.ndim)
    data = [item.handle.data for item in inputs]
    dtypes = [item.dtype for item in inputs]
    axis = self.axis
    if axis is None:
        data = [item.reshape(-1) for item in data]
    along = 0 if axis is None else axis % rank
    results = _direct(self.combine_fn, data, dtypes, along)
    if results is None:
        try:
            results = _tree(self.combine_fn, data, dtypes, along)
        except BlockCondition:
            return list(_generic_reduce(self, inputs))
    if self.keep_dims:
        shape = (1,) * rank if axis is None else None
        results = [item.reshape(shape) if shape else np.expand_dims(item, along) for item in results]
    return [_tensor(np.asarray(item), dtype) for item, dtype in zip(results, dtypes, strict=True)]


def _shifted(combine_fn: Any, data: list[Array], dtypes: list[Any]) -> list[Array]:
    """Inclusive scan along the first axis."""
    step = 1
    while step < data[0].shape[0]:
        # Whole blocks, because Triton's shapes are powers of two. The first `step` results are not used.
        earlier = [np.concatenate([d[:step], d[:-step]]) for d in data]
        merged = _combine(combine_fn, earlier, data, dtypes)
        data = [np.concatenate([d[:step], m[step:]]) for d, m in zip(data, merged, strict=True)]
        step *= 2
    return data


def _scan_impl(self: Any, inputs: tuple[Any, ...]) -> list[Any]:
    dtypes = [item.dtype for item in inputs]
    axis = self.axis % inputs[0].handle.data.ndim
    data = [np.moveaxis(item.handle.data, axis, 0) for item in inputs]
    if self.reverse:
        data = [item[::-1] for item in data]
    exact = dtypes[0].is_int() or dtypes[0].is_fp32() or dtypes[0].is_fp64()
    if self.combine_fn is tl.standard._sum_combine and exact:
        results = [np.cumsum(data[0], axis=0, dtype=data[0].dtype)]
    elif self.combine_fn is tl.standard._prod_combine and exact:
        results = [np.cumprod(data[0], axis=0, dtype=data[0].dtype)]
    else:
        try:
            results = _shifted(self.combine_fn, data, dtypes)
        except BlockCondition:
            tensors = tuple(_tensor(d, t) for d, t in zip(data, dtypes, strict=True))
            along_first = stock.ScanOps(0, self.combine_fn, False)
            results = [item.handle.data for item in _generic_scan(along_first, tensors)]
    if self.reverse:
        results = [item[::-1] for item in results]
    return [_tensor(np.moveaxis(item, 0, axis), dtype) for item, dtype in zip(results, dtypes, strict=True)]


def install() -> None:
    stock.ReduceOps.apply_impl = _reduce_impl
    stock.ScanOps.apply_impl = _scan_impl
