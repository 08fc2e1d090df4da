"""Block pointers and tensor descriptors: pointers and masks of a block at an offset of a larger tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
from triton._C.libtriton import ir
from triton.runtime import interpreter as stock

from kernelmill.evaluate.interpreter.handles import Array, Handle, Pointer, np_dtype
from kernelmill.evaluate.interpreter.operations.floats import narrow
from kernelmill.evaluate.interpreter.programs import group

Builder = stock.InterpreterBuilder


def _along(data: Array, axis: int, rank: int) -> Array:
    """Data with one axis after the programs' one, as that axis of a block."""
    shape = [data.shape[0], *(1,) * rank]
    if data.ndim > 1:
        shape[1 + axis] = data.shape[1]
    return data.reshape(shape)


def _pointers(base: Any, offsets: list[Array], strides: Any, shape: list[int]) -> Any:
    """Pointers to a block: for each axis the offsets of its elements, as an axis of the block."""
    rank = len(shape)
    index = np.zeros((1,) * (1 + rank), dtype=np.int64)
    for offset, stride in zip(offsets, strides, strict=True):
        index = index + offset * _along(stride.data.astype(np.int64), 0, rank)
    block = tuple(shape)
    group.check_size(block)
    if isinstance(base, Pointer):
        return Pointer(index + _along(base.index, 0, rank), base.dtype.scalar, block, base.base, base.storage)
    width = np_dtype(base.get_element_ty()).itemsize
    addresses = _along(base.data, 0, rank) + (width * index).astype(np.uint64)
    return Handle(addresses, base.dtype.scalar, None, block)


def _inside(offsets: list[Array], sizes: Any, axes: Any, shape: list[int]) -> Handle:
    """A mask of the elements that are inside the tensor along these axes."""
    rank = len(shape)
    mask = np.ones((1,) * (1 + rank), dtype=bool)
    for axis in axes:
        mask = mask & (offsets[axis] >= 0) & (offsets[axis] < _along(sizes[axis].data, 0, rank))
    return Handle(mask, tl.int1, None, tuple(shape))


def _offsets(starts: Any, shape: list[int]) -> list[Array]:
    rank = len(shape)
    return [
        _along(start.data.astype(np.int64), 0, rank) + _along(np.arange(size)[None], axis, rank)
        for axis, (start, size) in enumerate(zip(starts, shape, strict=True))
    ]


def _block_pointer(self: Any, boundary_check: Any) -> tuple[Any, Any]:
    shape = list(self.block_shape)
    offsets = _offsets(self.offsets, shape)
    pointers = _pointers(self.base, offsets, self.strides, shape)
    return pointers, _inside(offsets, self.shape, boundary_check, shape)


def _descriptor(self: Any, starts: Any) -> tuple[Any, Any]:
    width = np_dtype(self.base.dtype.element_ty).itemsize
    assert len(starts) == self.ndim
    assert not (starts[-1].data * width % 16).any(), "block offset start must be 16-byte aligned"
    shape = list(self.block_shape)
    offsets = _offsets(starts, shape)
    pointers = _pointers(self.base, offsets, self.strides, shape)
    return pointers, _inside(offsets, self.shape, range(len(shape)), shape)


def _validate(self: Any) -> None:
    assert self.ndim >= 1, "descriptor cannot be 0 dimensional"
    assert not (self.base.data % np.uint64(16)).any(), "base must be 16-byte aligned"
    assert len(self.strides) == self.ndim
    assert len(self.block_shape) == self.ndim
    width = np_dtype(self.base.dtype.element_ty).itemsize
    for stride in self.strides[:-1]:
        assert not (stride.data * width % 16).any(), "stride must be 16-byte aligned"
    assert (self.strides[-1].data == 1).all(), "last dim must be contiguous"


def _advance(self: Any, ptr: Any, offsets: Any) -> Any:
    if len(ptr.offsets) != len(offsets):
        raise ValueError("len(ptr.offsets) != len(offsets)")
    moved = [
        Handle(old.data + by.data, old.dtype, None, old.shape)
        for old, by in zip(ptr.offsets, offsets, strict=True)
    ]
    return type(ptr)(ptr.base, ptr.shape, ptr.strides, moved, ptr.block_shape, ptr.order)


def _padding(option: Any, element: Any) -> Handle | None:
    """What a load gives outside of the tensor."""
    if option is None:
        return None
    if option == ir.PADDING_OPTION.PAD_NAN:
        nan = np.array([np.nan], dtype=np.float32)
        data = narrow(nan) if element.is_bf16() else nan.astype(np_dtype(element))
        return Handle(data, element)
    if option == ir.PADDING_OPTION.PAD_ZERO:
        return Handle(np.zeros(1, dtype=np_dtype(element)), element)
    raise ValueError(f"unsupported padding option {option}")


def _spread(padding: Handle | None, rank: int) -> Handle | None:
    return None if padding is None else padding.moved(lambda data: data.reshape(1, *(1,) * rank), ())


def _load(
    self: Any, ptr: Any, boundary_check: Any, padding_option: Any, cache: Any, eviction: Any, is_volatile: Any
) -> Any:
    pointers, mask = ptr.materialize_pointers(boundary_check)
    other = _spread(_padding(padding_option, pointers.get_element_ty()), len(pointers.shape))
    return self.create_masked_load(pointers, mask, other, cache, eviction, is_volatile)


def _load_by_descriptor(self: Any, desc: Any, indices: Any, cache: Any, eviction: Any) -> Any:
    pointers, mask = desc.materialize_pointers(indices)
    other = _spread(_padding(desc.padding, pointers.get_element_ty()), len(pointers.shape))
    return self.create_masked_load(pointers, mask, other, cache, eviction, False)


def _rows(desc: Any, x_offsets: Any, y_offset: Any) -> tuple[Any, Any]:
    """Pointers to rows of a matrix, and which of them are inside."""
    shape = [x_offsets.shape[0], desc.block_shape[-1]]
    rows = _along(x_offsets.data.astype(np.int64), 0, 2)
    columns = _offsets([y_offset], shape[1:])[0]
    offsets = [rows, columns.reshape(columns.shape[0], 1, -1)]
    pointers = _pointers(desc.base, offsets, desc.strides, shape)
    return pointers, _inside(offsets, desc.shape, (0, 1), shape)


def _gather(self: Any, desc: Any, x_offsets: Any, y_offset: Any, type: Any) -> Any:
    pointers, mask = _rows(desc, x_offsets, y_offset)
    other = _spread(_padding(desc.padding, pointers.get_element_ty()), 2)
    return self.create_masked_load(pointers, mask, other, None, None, False)


def _scatter(self: Any, desc: Any, value: Any, x_offsets: Any, y_offset: Any) -> Any:
    pointers, mask = _rows(desc, x_offsets, y_offset)
    return self.create_masked_store(pointers, value, mask, None, None)


def install() -> None:
    stock.TensorDescHandle.materialize_pointers = _descriptor
    stock.TensorDescHandle.validate = _validate
    # Triton 3.8 has no block pointer handles: its block pointers are plain pointers.
    if hasattr(stock, "BlockPointerHandle"):
        stock.BlockPointerHandle.materialize_pointers = _block_pointer
        Builder.create_advance = _advance
        Builder.create_tensor_pointer_load = _load
    Builder.create_descriptor_load = _load_by_descriptor
    Builder.create_descriptor_gather = _gather
    Builder.create_descriptor_scatter = _scatter
