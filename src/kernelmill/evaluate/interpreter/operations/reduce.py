"""tl.reduce and tl.associative_scan on whole arrays.

The stock interpreter calls the combine function once per element. Here the common combine functions are NumPy
reductions. Any other one is applied to halves of the array: a tree for a reduction, log2(n) shifted passes
for a scan. The order of operands is kept, so a function that is associative but not commutative gives the
correct result.

Sums of 16-bit floats round after every addition, as on a GPU, where the sum stays in the operands' type. A
combine function that branches on its values cannot run on arrays: it runs element by element, one program at
a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as stock

from kernelmill.evaluate.interpreter.handles import Array, np_dtype, tensor_of
from kernelmill.evaluate.interpreter.programs import group
from kernelmill.evaluate.interpreter.rewriting import BlockCondition, rewritten

_Combine = Callable[[list[Array], list[Array]], list[Array]]


def _combiner(combine_fn: Any, dtypes: list[Any]) -> _Combine:
    """The combine function for lists of arrays, one for each operand."""
    function = rewritten(combine_fn.fn, combine_fn.kwargs)

    def combine(left: list[Array], right: list[Array]) -> list[Array]:
        operands = [
            tensor_of(data, dtype) for side in (left, right) for data, dtype in zip(side, dtypes, strict=True)
        ]
        result = function(*operands)
        results = result if isinstance(result, (tuple, tl.core.tuple)) else (result,)
        return [_as_block(item, dtype, left[0].ndim) for item, dtype in zip(results, dtypes, strict=True)]

    return combine


def _as_block(result: Any, dtype: Any, rank: int) -> Array:
    data = stock.interpreter_semantic.to_tensor(result).handle.data
    data = data.reshape(*data.shape, *(1,) * (rank - data.ndim))
    return data.astype(np_dtype(dtype), copy=False)  # type: ignore[no-any-return]


def _spread(data: list[Array], count: int) -> list[Array]:
    """The arrays with the last axis at its full size."""
    return [item if item.shape[-1] == count else _repeated(item, count) for item in data]


def _repeated(item: Array, count: int) -> Array:
    return np.broadcast_to(item, (*item.shape[:-1], count))


def _tree(combine: _Combine, data: list[Array], count: int) -> list[Array]:
    while count > 1:  # blocks have power of two sizes
        data = combine([d[..., 0::2] for d in data], [d[..., 1::2] for d in data])
        count //= 2
        data = _spread(data, count)
    return [item[..., 0] for item in data]


def _fold(combine: _Combine, data: list[Array], scan: bool) -> list[Array]:
    """Element by element: for a combine function that branches on its values."""
    group.order_matters()
    data = list(np.broadcast_arrays(*data))
    results = [np.empty_like(item, order="C") for item in data]
    for line in np.ndindex(data[0].shape[:-1]):
        total = [item[line][:1] for item in data]
        for at in range(data[0].shape[-1]):
            if at:
                total = combine(total, [item[line][at : at + 1] for item in data])
            for result, value in zip(results, total, strict=True):
                result[line][at] = value.item()
    return results if scan else [item[..., -1] for item in results]


def _exact(dtype: Any) -> bool:
    return bool(dtype.is_int() or dtype.is_fp32() or dtype.is_fp64())


def _extreme(plain: Any, ignoring_nan: Any, data: Array, axis: int) -> Array:
    """The maximum or minimum; NumPy's own that ignore NaN are much slower."""
    result: Array = plain.reduce(data, axis=axis)
    if result.dtype.kind == "f" and np.isnan(result).any():
        result = ignoring_nan.reduce(data, axis=axis)
    return result


def _direct(combine_fn: Any, data: list[Array], dtype: Any, axis: int) -> list[Array] | None:
    """The reduction by NumPy itself, or None if NumPy lacks the combine function."""
    standard = tl.standard
    first = data[0]
    if combine_fn is standard._xor_combine:
        return [np.bitwise_xor.reduce(first, axis=axis)]
    if not _exact(dtype):
        return None
    if combine_fn is standard._sum_combine:
        return [np.add.reduce(first, axis=axis, dtype=first.dtype)]
    if combine_fn is standard._elementwise_max:
        return [_extreme(np.maximum, np.fmax, first, axis)]
    if combine_fn is standard._elementwise_min:
        return [_extreme(np.minimum, np.fmin, first, axis)]
    largest = (standard._argmax_combine_tie_break_left, standard._argmax_combine_tie_break_fast)
    smallest = (standard._argmin_combine_tie_break_left, standard._argmin_combine_tie_break_fast)
    if combine_fn in largest or combine_fn in smallest:
        pick = np.argmax if combine_fn in largest else np.argmin
        where = np.expand_dims(pick(first, axis=axis), axis)
        data = list(np.broadcast_arrays(*data)) if data[1].shape != first.shape else data
        if data[0].shape != first.shape:
            where = np.broadcast_to(where, (*data[0].shape[:axis], 1, *data[0].shape[axis + 1 :]))
        return [np.take_along_axis(item, where, axis).squeeze(axis) for item in data]
    return None


def _reduce_impl(self: Any, inputs: tuple[Any, ...]) -> list[Any]:
    handles = [item.handle for item in inputs]
    dtypes = [item.dtype for item in inputs]
    shape = handles[0].shape
    if not shape:
        return list(inputs)
    if self.axis is None:
        data = [
            np.broadcast_to(h.data, (h.data.shape[0], *shape)).reshape(h.data.shape[0], -1) for h in handles
        ]
        along = 0
        rest: tuple[int, ...] = ()
    else:
        along = self.axis % len(shape)
        rest = (*shape[:along], *shape[along + 1 :])
        data = [_whole_axis(handle.data, 1 + along, shape[along]) for handle in handles]
    results = _direct(self.combine_fn, data, dtypes[0], 1 + along)
    if results is None:
        combine = _combiner(self.combine_fn, dtypes)
        data = [np.moveaxis(item, 1 + along, -1) for item in data]
        try:
            results = _tree(combine, data, data[0].shape[-1])
        except BlockCondition:
            results = _fold(combine, data, scan=False)
    if self.keep_dims:
        axes = range(1, 1 + len(shape)) if self.axis is None else (1 + along,)
        rest = (1,) * len(shape) if self.axis is None else (*shape[:along], 1, *shape[along + 1 :])
        for axis in axes:
            results = [np.expand_dims(item, axis) for item in results]
    return [
        tensor_of(item.astype(np_dtype(dtype), copy=False), dtype, rest)
        for item, dtype in zip(results, dtypes, strict=True)
    ]


def _whole_axis(data: Array, axis: int, size: int) -> Array:
    """The data with this axis at its full size."""
    if data.shape[axis] == size:
        return data
    return np.broadcast_to(data, (*data.shape[:axis], size, *data.shape[axis + 1 :]))


def _shifted(combine: _Combine, data: list[Array]) -> list[Array]:
    """Inclusive scan along the last axis."""
    step, count = 1, data[0].shape[-1]
    while step < count:
        # Whole blocks, because Triton's shapes are powers of two. The first `step` results are not used.
        earlier = [np.concatenate([d[..., :step], d[..., :-step]], axis=-1) for d in data]
        merged = _spread(combine(earlier, data), count)
        data = [_continued(d, m, step) for d, m in zip(data, merged, strict=True)]
        step *= 2
    return data


def _continued(before: Array, merged: Array, step: int) -> Array:
    before, merged = np.broadcast_arrays(before, merged)
    return np.concatenate([before[..., :step], merged[..., step:]], axis=-1)


def _scan_impl(self: Any, inputs: tuple[Any, ...]) -> list[Any]:
    handles = [item.handle for item in inputs]
    dtypes = [item.dtype for item in inputs]
    shape = handles[0].shape
    axis = self.axis % len(shape)
    data = [_whole_axis(handle.data, 1 + axis, shape[axis]) for handle in handles]
    along = 1 + axis
    if self.reverse:
        data = [np.flip(item, along) for item in data]
    exact = _exact(dtypes[0])
    if self.combine_fn is tl.standard._sum_combine and exact:
        results = [np.cumsum(data[0], axis=along, dtype=data[0].dtype)]
    elif self.combine_fn is tl.standard._prod_combine and exact:
        results = [np.cumprod(data[0], axis=along, dtype=data[0].dtype)]
    else:
        combine = _combiner(self.combine_fn, dtypes)
        data = [np.moveaxis(item, along, -1) for item in data]
        try:
            results = _shifted(combine, data)
        except BlockCondition:
            results = _fold(combine, data, scan=True)
        results = [np.moveaxis(item, -1, along) for item in results]
    if self.reverse:
        results = [np.flip(item, along) for item in results]
    return [tensor_of(item, dtype, shape) for item, dtype in zip(results, dtypes, strict=True)]


def install() -> None:
    stock.ReduceOps.apply_impl = _reduce_impl
    stock.ScanOps.apply_impl = _scan_impl
