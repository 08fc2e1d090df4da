"""Loads and stores, with every lane checked against the tensors passed to the kernel.

A pointer keeps track of the storage it was computed from, so a lane that runs off the end of one tensor into
another is still out of bounds. An out-of-bounds lane is recorded. Its load returns NaN (or a sentinel), its
store or atomic is dropped: the process survives, and the surrounding memory stays intact.

A pointer made from an integer belongs to the live tensor it points into. If there is none, or an operation
mixed several, its lanes are checked against all live tensors, and its programs run one by one.
"""

from __future__ import annotations

import gc
import math
from typing import Any

import numpy as np
import torch
from triton._C.libtriton import interpreter as native
from triton.runtime import interpreter as stock

from kernelmill.evaluate.interpreter.handles import (
    ADDRESS,
    Array,
    Handle,
    Pointer,
    Storage,
    View,
    contiguous,
    np_dtype,
)
from kernelmill.evaluate.interpreter.memory import within
from kernelmill.evaluate.interpreter.memory.journal import Where, journal
from kernelmill.evaluate.interpreter.memory.races import MANY, Touched, Who
from kernelmill.evaluate.interpreter.memory.within import Written, ids_of
from kernelmill.evaluate.interpreter.observe import OOB_KEPT, Oob, Race, observer
from kernelmill.evaluate.interpreter.programs import group, position
from kernelmill.evaluate.interpreter_gaps import NO_BARRIER

Builder = stock.InterpreterBuilder
_load, _store = native.load, native.store

_TENSORS = (torch.Tensor, torch.nn.Parameter)


class Reach:
    """The storages that the running kernel may touch, by argument name."""

    def __init__(self, kernel: str, storages: dict[str, Storage], touched: Touched | None) -> None:
        self.kernel = kernel
        self.storages = storages
        self.touched = touched
        self.written = Written()
        self._live: list[Storage] | None = None
        self._outside: list[tuple[int, Oob | None]] = []
        """Accesses out of bounds by programs that run together: a program's number, and the event if it may
        be among the first."""

    def watched(self) -> Touched | None:
        """Who watches the running programs, if somebody does."""
        touched = self.touched
        return (
            touched
            if touched is not None and (group.together or touched.watching or observer.strict)
            else None
        )

    def live(self) -> list[Storage]:
        """Every live tensor's storage: for pointers passed as integers (tables of addresses)."""
        if self._live is None:
            found = {(one.low, one.high): one for one in self.storages.values()}
            with torch._C.DisableTorchFunction():
                for item in gc.get_objects():
                    # type(), not isinstance(): querying the class of some lazy module's objects warns or
                    # imports.
                    if type(item) in _TENSORS and item.layout is torch.strided and not item.is_meta:
                        storage = item.untyped_storage()
                        low = storage.data_ptr()
                        found.setdefault(
                            (low, low + storage.nbytes()), Storage("", low, low + storage.nbytes())
                        )
            self._live = [found[key] for key in sorted(found)]
        return self._live

    def outside(self, kind: str, addresses: Array, bad: Array) -> None:
        """Record lanes that are out of bounds. Both arrays have the programs' axis and full blocks."""
        programs = np.logical_or.reduce(bad.reshape(bad.shape[0], -1), axis=1)
        numbers = group.numbers[programs] if len(programs) == group.count else group.numbers
        for at, number in enumerate(numbers):
            if at >= OOB_KEPT:
                self._record(int(number), None)
                continue
            row = int(np.flatnonzero(programs)[at]) if len(programs) == group.count else 0
            self._record(int(number), self._event(kind, int(number), addresses[row], bad[row]))

    def _event(self, kind: str, number: int, addresses: Array, bad: Array) -> Oob:
        first = int(addresses[bad].reshape(-1)[0])
        argument, beyond = "", 0
        for name, storage in self.storages.items():
            distance = first - storage.high if first >= storage.high else min(0, first - storage.low)
            if not argument or abs(distance) < abs(beyond):
                argument, beyond = name, distance
        where = position(group.grid, number)
        return Oob(kind, self.kernel, where, int(bad.sum()), int(bad.size), argument, beyond)

    def _record(self, number: int, event: Oob | None) -> None:
        if group.together:
            self._outside.append((number, event))
        else:
            observer.out_of_bounds(event)

    def mark(self) -> int:
        return len(self._outside)

    def forget(self, mark: int = 0) -> None:
        del self._outside[mark:]

    def report(self, backwards: bool) -> None:
        """Report the recorded accesses in the order in which the programs would have made them."""
        for _, event in sorted(self._outside, key=lambda one: -one[0] if backwards else one[0]):
            observer.out_of_bounds(event)
        self._outside.clear()


class _MemoryState:
    reach: Reach


state = _MemoryState()


class Lanes:
    """The lanes of one access by pointers of a known storage, each an index into the view's array.

    `at` and `on` have the programs' axis, and may lack repeated axes; `on` is None if all lanes are on.
    """

    __slots__ = ("at", "bad", "on", "shape", "storage", "view")

    def __init__(self, ptrs: Pointer, mask: Any, kind: str) -> None:
        self.storage, self.shape = ptrs.storage, ptrs.shape
        dtype = np_dtype(ptrs.get_element_ty())
        self.view: View = ptrs.storage.view(ptrs.base, dtype)
        at = ptrs.index
        if self.view.first:
            at = at - self.view.first
        self.at = at
        on = None if mask is None else mask.data
        if on is not None and on.all():
            on = None
        self.bad: Array | None = None
        count = len(self.view.array)
        if at.size and not (at.min() >= 0 and at.max() < count):
            outside = at.view(np.uint64) >= np.uint64(count)
            bad = outside if on is None else on & outside
            if bad.any():
                self.bad = bad
                on = ~outside if on is None else on & ~outside
                programs = max(at.shape[0], bad.shape[0])
                block = (programs, *self.shape)
                addresses = np.broadcast_to(ptrs.data, block)
                state.reach.outside(kind, addresses, np.broadcast_to(bad, block))
        self.on: Array | None = on

    def active(self) -> tuple[Where, Who]:
        """The indices of the lanes that are on, as one axis, and who they belong to."""
        at, on = self.at, self.on
        if on is not None:
            at, on = np.broadcast_arrays(at, on)
        lanes = at.reshape(-1) if on is None else at[on]
        return _run(lanes), self._who(at, on)

    def _who(self, at: Array, on: Array | None) -> Who:
        if group.count == 1:
            return int(group.numbers[0])
        if at.shape[0] == 1:
            return MANY
        each = group.numbers.reshape(-1, *(1,) * (at.ndim - 1))
        return (
            np.broadcast_to(each, at.shape).reshape(-1) if on is None else np.broadcast_to(each, at.shape)[on]
        )


def _run(lanes: Array) -> Where:
    """A slice, if the lanes follow one another."""
    count = len(lanes)
    if count and int(lanes[-1]) - int(lanes[0]) == count - 1 and (count == 1 or _ascends(lanes)):
        return slice(int(lanes[0]), int(lanes[0]) + count)
    return lanes


def _ascends(lanes: Array) -> bool:
    return bool((lanes[1:] - lanes[:-1] == 1).all())


def garbage(dtype: Any) -> Any:
    """What an out-of-bounds lane reads: NaN, or an unlikely number."""
    if dtype.is_floating():
        if dtype.is_bf16():
            return np.uint16(0x7FC0)
        return np.uint8(0x7F) if dtype.is_fp8() else np_dtype(dtype).type(np.nan)
    return True if dtype.is_int1() else np_dtype(dtype).type(np.iinfo(np_dtype(dtype)).max)


def _masked_load(
    self: Any, ptrs: Any, mask: Any, other: Any, cache_modifier: Any, eviction_policy: Any, is_volatile: Any
) -> Any:
    if is_volatile:
        group.polled()
        group.order_matters()
    else:
        group.loads += 1
    element = ptrs.get_element_ty()
    if not isinstance(ptrs, Pointer):
        return _load_addresses(ptrs, mask, other, element)
    lanes = Lanes(ptrs, mask, "load")
    touched = state.reach.watched()
    if touched is not None:
        if is_volatile:
            touched.synchronised()
        elif touched.tracks(lanes.storage):
            where, who = lanes.active()
            touched.load(lanes.storage, lanes.view, where, who)
    if observer.strict:
        _read_within(lanes)
    array, at, on = lanes.view.array, lanes.at, lanes.on
    if len(array):
        data = array.take(at, mode="clip")
    else:
        data = np.zeros(at.shape, dtype=array.dtype)
    if on is not None:
        nothing = garbage(element) if observer.strict else array.dtype.type(0)
        data = np.where(on, data, nothing if other is None else other.data)
    if lanes.bad is not None:
        data = np.where(lanes.bad, garbage(element), data)
    return Handle(data.astype(array.dtype, copy=False), element, None, ptrs.shape)


def _read_within(lanes: Lanes) -> None:
    """Report lanes that read what another lane of their program has written, without a barrier between."""
    ids = ids_of(lanes.at, lanes.on, lanes.shape)
    if ids is None or not len(lanes.view.array):
        return
    where, who = lanes.active()
    of = lanes.storage, lanes.view.array, where, who, ids, math.prod(lanes.shape)
    wrong = state.reach.written.others(*of)
    if wrong is not None:
        group.order_matters()
        first = int(np.arange(len(lanes.view.array))[where][wrong][0]) * lanes.view.array.itemsize
        observer.race(Race(NO_BARRIER, state.reach.kernel, (None, None), lanes.storage.name, first))


def _masked_store(self: Any, ptrs: Any, value: Any, mask: Any, *modifiers: Any, **more: Any) -> Any:
    element = ptrs.get_element_ty()
    data = value.data.astype(np_dtype(element), copy=False)
    if not isinstance(ptrs, Pointer):
        _store_addresses(ptrs, data, mask, element)
        return
    lanes = Lanes(ptrs, mask, "store")
    at = lanes.at
    # Axes along which the pointers, the values and the mask repeat are stored once.
    arrays = [at, data] if lanes.on is None else [at, data, lanes.on]
    if at.shape != data.shape or (lanes.on is not None and lanes.on.shape != at.shape):
        arrays = list(np.broadcast_arrays(*arrays))
    lanes.at = arrays[0]
    lanes.on = arrays[2] if lanes.on is not None else None
    data = arrays[1].reshape(-1) if lanes.on is None else arrays[1][lanes.on]
    if not data.size:
        return
    where, who = lanes.active()
    if observer.strict and (ids := ids_of(lanes.at, lanes.on, lanes.shape)) is not None:
        state.reach.written.store(lanes.storage, lanes.view.array, where, who, ids, math.prod(lanes.shape))
    touched = state.reach.watched()
    if touched is None:
        journal.set(lanes.view.array, where, data)
    else:
        touched.store(lanes.storage, lanes.view, where, who, data, element)


def _create_load(self: Any, ptr: Any, cache: Any, eviction: Any, is_volatile: Any) -> Any:
    return _masked_load(self, ptr, None, None, cache, eviction, is_volatile)


def _create_store(self: Any, ptr: Any, val: Any, *modifiers: Any) -> Any:
    return _masked_store(self, ptr, val, None)


# Pointers of no known storage: one program at a time, by address.


def reachable(addresses: Array, active: Array, width: int, kind: str) -> Array:
    """Which active lanes are inside a live tensor. The others are recorded."""
    group.order_matters()
    inside = np.zeros(addresses.shape, dtype=bool)
    for storage in state.reach.live():
        if storage.high - storage.low >= width:
            low, high = np.uint64(storage.low), np.uint64(storage.high - width)
            inside |= (addresses >= low) & (addresses <= high)
    bad = active & ~inside
    if bad.any():
        state.reach.outside(kind, addresses, bad)
    return active & inside


def whole(handle: Any, mask: Any) -> tuple[Array, Array]:
    """The addresses and the mask of one program, with every lane."""
    addresses = np.ascontiguousarray(contiguous(handle), dtype=ADDRESS)
    active = np.ones(addresses.shape, dtype=bool) if mask is None else mask.data
    return addresses, np.ascontiguousarray(np.broadcast_to(active, addresses.shape))


def _load_addresses(ptrs: Any, mask: Any, other: Any, element: Any) -> Any:
    wanted = np_dtype(element)
    addresses, active = whole(ptrs, mask)
    inside = reachable(addresses, active, wanted.itemsize, "load")
    fill = np.zeros(addresses.shape, dtype=wanted)
    if other is not None:
        fill[...] = other.data
    result = _load(addresses, inside, fill, wanted)
    result[active & ~inside] = garbage(element)
    return Handle(result, element)


def _store_addresses(ptrs: Any, data: Array, mask: Any, element: Any) -> None:
    addresses, active = whole(ptrs, mask)
    inside = reachable(addresses, active, data.itemsize, "store")
    _store(addresses, np.ascontiguousarray(np.broadcast_to(data, addresses.shape)), inside)


def _add_pointer(self: Any, ptr: Any, offset: Any) -> Any:
    data = offset.data
    if isinstance(ptr, Pointer):
        data = data.view(np.int64) if data.dtype == ADDRESS else data
        return ptr.at(ptr.index + data)
    width = np.uint64(np_dtype(ptr.get_element_ty()).itemsize)
    return Handle(ptr.data + width * data.astype(ADDRESS), ptr.dtype, None, ptr.shape)


def _int_to_pointer(self: Any, src: Any, dst_type: Any) -> Any:
    """A pointer into the live tensor that has this address. Programs with different addresses part here."""
    dtype = dst_type.scalar
    if math.prod(src.shape) == 1:
        address = int(group.one(src.data)) % (1 << 64)
        for storage in state.reach.live():
            if storage.low <= address < storage.high:
                return Pointer(np.zeros(src.data.shape, dtype=np.int64), dtype, src.shape, address, storage)
    return Handle(src.data.astype(ADDRESS), dtype, None, src.shape)


def install() -> None:
    Builder.create_load = _create_load
    Builder.create_store = _create_store
    Builder.create_masked_load = _masked_load
    Builder.create_masked_store = _masked_store
    Builder.create_addptr = _add_pointer
    Builder.create_int_to_ptr = _int_to_pointer
    within.install(lambda: state.reach)
