"""Loads, stores and atomics, with every lane checked against the tensors passed to the kernel.

A pointer keeps track of the storage it was computed from, so a lane that runs off the end of one tensor into
another is still out of bounds. An out-of-bounds lane is recorded. Its load returns NaN (or a sentinel), its
store or atomic is dropped: the process survives, and the surrounding memory stays intact.
"""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import torch
from triton._C.libtriton import interpreter as native
from triton._C.libtriton import ir
from triton.runtime import interpreter as stock

from kernelmill.evaluate.interpreter.numerics import Array, Handle, narrow, widen
from kernelmill.evaluate.interpreter.observe import Oob, observer
from kernelmill.evaluate.interpreter.races import Races, Range
from kernelmill.evaluate.interpreter.speed import np_dtype

Builder = stock.InterpreterBuilder
_load, _store = native.load, native.store
_atomic_cas, _atomic_rmw = native.atomic_cas, native.atomic_rmw

_TENSORS = (torch.Tensor, torch.nn.Parameter)


class Reach:
    """The storages that the running kernel may touch, by argument name."""

    def __init__(self, kernel: str, storages: dict[str, Range], races: Races | None) -> None:
        self.kernel = kernel
        self.storages = storages
        self.races = races
        self._live: list[Range] | None = None

    def live(self) -> list[Range]:
        """Every live tensor's storage: for pointers passed as integers (tables of addresses)."""
        if self._live is None:
            found = set(self.storages.values())
            with torch._C.DisableTorchFunction():
                for item in gc.get_objects():
                    # type(), not isinstance(): querying the class of some lazy module's objects warns or
                    # imports.
                    if type(item) in _TENSORS and item.layout is torch.strided and not item.is_meta:
                        storage = item.untyped_storage()
                        found.add((storage.data_ptr(), storage.data_ptr() + storage.nbytes()))
            self._live = sorted(found)
        return self._live


class _MemoryState:
    reach: Reach | None = None


state = _MemoryState()


def _outside(pointers: Array, active: Array | None, width: int, origin: Range | None) -> Array | None:
    """Which active lanes are out of bounds, or None if all are inside."""
    if pointers.size == 0 or state.reach is None:
        return None
    lowest, highest = int(pointers.min()), int(pointers.max()) + width
    ranges = [origin] if origin is not None else list(state.reach.storages.values())
    if any(low <= lowest and highest <= high for low, high in ranges):
        return None
    bad = _not_in(pointers, active, width, ranges)
    if origin is None and bad.any():
        bad = _not_in(pointers, active, width, state.reach.live())
    return bad if bad.any() else None


def _not_in(pointers: Array, active: Array | None, width: int, ranges: list[Range]) -> Array:
    inside = np.zeros(pointers.shape, dtype=bool)
    for low, high in ranges:
        if high - low >= width:
            inside |= (pointers >= np.uint64(low)) & (pointers <= np.uint64(high - width))
    bad = ~inside
    return bad if active is None else bad & active


def _record(kind: str, pointers: Array, bad: Array) -> None:
    assert state.reach is not None
    first = int(pointers[bad].reshape(-1)[0])
    argument, beyond = "", 0
    for name, (low, high) in state.reach.storages.items():
        distance = first - high if first >= high else min(0, first - low)
        if not argument or abs(distance) < abs(beyond):
            argument, beyond = name, distance
    observer.out_of_bounds(
        Oob(
            kind=kind,
            kernel=state.reach.kernel,
            program=stock.interpreter_builder.grid_idx,
            lanes=int(bad.sum()),
            of=int(bad.size),
            argument=argument,
            beyond=beyond,
        )
    )


def _width(element: Any) -> int:
    return max(1, int(element.primitive_bitwidth) // 8)


def _mask(mask: Any) -> Array:
    data = mask if isinstance(mask, np.ndarray) else mask.data
    return np.ascontiguousarray(data, dtype=bool)


def _garbage(dtype: Any) -> Any:
    """What an out-of-bounds lane reads: NaN, or an unlikely number."""
    if dtype.is_floating():
        return np.uint16(0x7FC0) if dtype.is_bf16() else np.nan
    return True if dtype.is_int1() else np.iinfo(np_dtype(dtype)).max


def _races() -> Races | None:
    return None if state.reach is None else state.reach.races


def _masked_load(
    self: Any, ptrs: Any, mask: Any, other: Any, cache_modifier: Any, eviction_policy: Any, is_volatile: Any
) -> Any:
    element = ptrs.get_element_ty()
    wanted = np_dtype(element)
    pointers, active = np.ascontiguousarray(ptrs.data), _mask(mask)
    width, origin = _width(element), getattr(ptrs, "origin", None)
    bad = _outside(pointers, active, width, origin)
    if bad is not None:
        _record("load", pointers, bad)
        active = active & ~bad
    races = _races()
    if races is not None and races.watching:
        if is_volatile:
            races.synchronised()
        elif origin is not None:
            races.load(pointers, active, width, origin)
    fill = np.zeros(pointers.shape, dtype=wanted) if other is None else np.ascontiguousarray(other.data)
    result = _load(pointers, active, fill, wanted)
    if bad is not None:
        result[bad] = _garbage(element)
    return Handle(result, element)


def _masked_store(self: Any, ptrs: Any, value: Any, mask: Any, *modifiers: Any, **more: Any) -> Any:
    element = ptrs.get_element_ty()
    pointers, active = np.ascontiguousarray(ptrs.data), _mask(mask)
    width, origin = _width(element), getattr(ptrs, "origin", None)
    bad = _outside(pointers, active, width, origin)
    if bad is not None:
        _record("store", pointers, bad)
        active = active & ~bad
    # The native store writes as many bytes as the array's items have.
    data = np.ascontiguousarray(value.data, dtype=np_dtype(element))
    races = _races()
    if races is not None and races.watching and origin is not None:
        races.store(pointers, active, width, origin, data, _standing(data.dtype), element)
    return _store(pointers, data, active)


def _standing(dtype: Any) -> Any:
    """Return a function that reads the current values at pointers."""

    def load(pointers: Array) -> Array:
        every = np.ones(pointers.shape, dtype=bool)
        return _load(pointers, every, np.zeros(pointers.shape, dtype=dtype), dtype)  # type: ignore[no-any-return]

    return load


def _atomic_rmw_checked(self: Any, op: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Any:
    element = ptr.get_element_ty()
    # The native functions read their arrays as if they were contiguous.
    pointers, active, value = np.ascontiguousarray(ptr.data), _mask(mask), np.ascontiguousarray(val.data)
    width, origin = _width(element), getattr(ptr, "origin", None)
    bad = _outside(pointers, active, width, origin)
    if bad is not None:
        _record("atomic", pointers, bad)
        active = active & ~bad
    races = _races()
    if races is not None:
        races.atomic(pointers, active, width, origin)
    dtype = val.dtype.scalar
    if dtype.is_bf16() or dtype.is_fp16():
        result = _half_rmw(op, pointers, value, active, dtype)
    else:
        native_op = self.ir_rmw_op_to_interpreter_rmw_op[op]
        native_sem = self.ir_sem_to_interpreter_sem[sem]
        result = _atomic_rmw(native_op, pointers, value, active, native_sem)
    return Handle(result, dtype)


def _half_rmw(op: Any, pointers: Array, value: Array, active: Array, dtype: Any) -> Array:
    """16-bit float atomics, lane by lane, because two lanes may share an address."""
    flat, numbers, on = pointers.reshape(-1), value.reshape(-1), active.reshape(-1)
    old = np.zeros(flat.shape, dtype=value.dtype)
    for lane in np.flatnonzero(on):
        here = slice(lane, lane + 1)
        before = _load(flat[here], on[here], old[here], value.dtype)
        old[here] = before
        if op == ir.ATOMIC_OP.XCHG:
            after = numbers[here]
        elif op == ir.ATOMIC_OP.FADD:
            if dtype.is_bf16():
                after = narrow(widen(before) + widen(numbers[here]))
            else:
                after = before + numbers[here]
        else:
            raise ValueError(f"unsupported atomic on {dtype}: {op}")
        _store(flat[here], np.ascontiguousarray(after), on[here])
    return old.reshape(value.shape)


def _atomic_cas_checked(self: Any, ptr: Any, cmp: Any, val: Any, sem: Any, scope: Any) -> Any:
    element = ptr.get_element_ty()
    pointers = np.ascontiguousarray(ptr.data)
    compare, swap = (np.ascontiguousarray(np.broadcast_to(item.data, pointers.shape)) for item in (cmp, val))
    width, origin = _width(element), getattr(ptr, "origin", None)
    bad = _outside(pointers, None, width, origin)
    races = _races()
    if races is not None:
        races.atomic(pointers, np.ones(pointers.shape, dtype=bool) if bad is None else ~bad, width, origin)
    native_sem = self.ir_sem_to_interpreter_sem[sem]
    if bad is None:
        return Handle(_atomic_cas(pointers, compare, swap, native_sem), cmp.dtype.scalar)
    _record("atomic", pointers, bad)
    result = np.full(pointers.shape, _garbage(cmp.dtype.scalar), dtype=cmp.data.dtype)
    good = ~bad
    if good.any():
        result[good] = _atomic_cas(pointers[good], compare[good], swap[good], native_sem)
    return Handle(result, cmp.dtype.scalar)


def _keeping_origin(method: Any, position: int) -> Any:
    """Wrap a builder method so that its result keeps the storage of the pointer at this position."""

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = method(self, *args, **kwargs)
        origin = getattr(args[position], "origin", None)
        if origin is not None:
            result.origin = origin
        return result

    return run


def _materialize(method: Any) -> Any:
    """Wrap `materialize_pointers` so that the pointers keep their base's storage."""

    def run(self: Any, *args: Any) -> Any:
        pointers, masks = method(self, *args)
        origin = getattr(self.base, "origin", None)
        if origin is not None:
            pointers.origin = origin
        return pointers, masks

    return run


_POINTER_METHODS = {
    "create_addptr": 0,
    "create_splat": 1,
    "create_broadcast": 0,
    "create_expand_dims": 0,
    "create_reshape": 0,
    "create_trans": 0,
    "create_unsplat": 0,
}
# Triton 3.8 has no block pointer handles: its block pointers are plain pointers.
_MATERIALIZE = {
    owner: owner.materialize_pointers
    for owner in (getattr(stock, name, None) for name in ("BlockPointerHandle", "TensorDescHandle"))
    if owner is not None
}


def install() -> None:
    Builder.create_masked_load = _masked_load
    Builder.create_masked_store = _masked_store
    Builder.create_atomic_rmw = _atomic_rmw_checked
    Builder.create_atomic_cas = _atomic_cas_checked
    for name, position in _POINTER_METHODS.items():
        setattr(Builder, name, _keeping_origin(getattr(Builder, name), position))
    for owner, method in _MATERIALIZE.items():
        owner.materialize_pointers = _materialize(method)
