"""Atomic operations.

While programs run together, an atomic operation is put off to the end of the batch. Then all are applied in
the order in which the programs would have made them one by one, so that sums round the same. What the
operation returns depends on that order: a kernel that looks at it, and any compare-and-swap, runs one by one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from triton._C.libtriton import interpreter as native
from triton._C.libtriton import ir
from triton.runtime import interpreter as stock

from kernelmill.evaluate.interpreter.handles import Array, Handle, Pointer, Storage, np_dtype
from kernelmill.evaluate.interpreter.memory.access import Lanes, garbage, reachable, state, whole
from kernelmill.evaluate.interpreter.memory.journal import Where, journal
from kernelmill.evaluate.interpreter.operations.floats import narrow, widen
from kernelmill.evaluate.interpreter.programs import Deferred, group

Builder = stock.InterpreterBuilder
_atomic_cas, _atomic_rmw = native.atomic_cas, native.atomic_rmw
_load, _store = native.load, native.store
_Op = ir.ATOMIC_OP
_FUNCTIONS = {
    _Op.ADD: np.add,
    _Op.FADD: np.add,
    _Op.MIN: np.minimum,
    _Op.UMIN: np.minimum,
    _Op.MAX: np.maximum,
    _Op.UMAX: np.maximum,
    _Op.AND: np.bitwise_and,
    _Op.OR: np.bitwise_or,
    _Op.XOR: np.bitwise_xor,
}


class _Put(NamedTuple):
    """One operation that was put off: for each lane an index, a value and a program."""

    op: Any
    storage: Storage
    array: Array
    at: Array
    value: Array
    who: Array
    dtype: Any

    @property
    def kind(self) -> tuple[Any, Storage, int]:
        return self.op, self.storage, id(self.array)


class PutOff:
    """The operations of a batch that are put off."""

    def __init__(self) -> None:
        self._puts: list[_Put] = []

    def add(self, put: _Put) -> None:
        self._puts.append(put)

    def mark(self) -> int:
        return len(self._puts)

    def forget(self, mark: int = 0) -> None:
        del self._puts[mark:]

    def apply(self, backwards: bool) -> None:
        """Apply all, program after program."""
        puts, self._puts = self._puts, []
        kinds = {put.kind for put in puts}
        if len(kinds) == len({storage for _, storage, _ in kinds}):
            for kind in kinds:
                _apply_alike([put for put in puts if put.kind == kind], backwards)
        else:
            _apply_in_turn(puts, backwards)


put_off = PutOff()


def _apply_alike(puts: list[_Put], backwards: bool) -> None:
    """Apply operations of one kind to one array."""
    first = puts[0]
    at, value, who = (np.concatenate([getattr(put, part) for put in puts]) for part in ("at", "value", "who"))
    if len(puts) > 1 and first.op in (_Op.FADD, _Op.XCHG):
        order = np.argsort(-who if backwards else who, kind="stable")
        at, value = at[order], value[order]
    _apply(first.op, first.array, at, value, first.dtype)


def _apply_in_turn(puts: list[_Put], backwards: bool) -> None:
    """Apply operations of several kinds, which may change the same places: one program after another."""
    pieces = []
    for turn, put in enumerate(puts):
        edges = np.flatnonzero(np.diff(put.who)) + 1
        for piece in np.split(np.arange(len(put.who)), edges):
            if len(piece):
                number = int(put.who[piece[0]])
                pieces.append((-number if backwards else number, turn, int(piece[0]), piece))
    for _, turn, _, piece in sorted(pieces, key=lambda one: one[:3]):
        put = puts[turn]
        _apply(put.op, put.array, put.at[piece], put.value[piece], put.dtype)


def _apply(op: Any, array: Array, at: Array, value: Array, dtype: Any) -> None:
    if op == _Op.XCHG:
        array[at] = value
    elif dtype.is_bf16():
        for lanes in _rounds(at):
            array[at[lanes]] = narrow(widen(array[at[lanes]]) + widen(value[lanes]))
    else:
        _FUNCTIONS[op].at(array, at, value)


def _rounds(at: Array) -> list[Array]:
    """Lanes such that no two of a round have the same index, in order."""
    order = np.argsort(at, kind="stable")
    ordered = at[order]
    new = np.concatenate([[True], ordered[1:] != ordered[:-1]]) if len(at) else np.zeros(0, dtype=bool)
    starts = np.flatnonzero(new)
    turn = np.arange(len(at)) - np.repeat(starts, np.diff(np.append(starts, len(at))))
    return [order[turn == number] for number in range(int(turn.max()) + 1 if len(at) else 0)]


def _as_array(where: Where) -> Array:
    return np.arange(where.start, where.stop) if isinstance(where, slice) else where


def _check_float(op: Any, dtype: Any) -> None:
    if dtype.is_floating() and op not in (_Op.FADD, _Op.XCHG):
        raise ValueError(f"unsupported atomic on {dtype}: {op}")


def _rmw(self: Any, op: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Any:
    group.polled()
    dtype = val.dtype.scalar
    _check_float(op, dtype)
    if isinstance(ptr, Pointer) and group.together:
        _defer(op, ptr, val, mask, dtype)
        return Deferred(dtype, ptr.shape)
    addresses, active = _ready(ptr, mask)
    value = np.ascontiguousarray(np.broadcast_to(val.data, addresses.shape))
    if dtype.is_bf16() or dtype.is_fp16():
        result = _half_rmw(op, addresses, value, active, dtype)
    else:
        native_op = self.ir_rmw_op_to_interpreter_rmw_op[op]
        native_sem = self.ir_sem_to_interpreter_sem[sem]
        result = _atomic_rmw(native_op, addresses, value, active, native_sem)
    return Handle(result, dtype)


def _defer(op: Any, ptr: Pointer, val: Any, mask: Any, dtype: Any) -> None:
    lanes = Lanes(ptr, mask, "atomic")
    block = (group.count, *ptr.shape)
    lanes.at = np.broadcast_to(lanes.at, block)
    lanes.on = None if lanes.on is None else np.broadcast_to(lanes.on, block)
    value = np.broadcast_to(val.data, block)
    value = value.reshape(-1) if lanes.on is None else value[lanes.on]
    if not value.size:
        return
    where, who = lanes.active()
    assert state.reach.touched is not None
    state.reach.touched.atomic(lanes.storage, lanes.view, where, who)
    at = _as_array(where)
    journal.keeps(at.nbytes + value.nbytes)
    each = np.broadcast_to(who, at.shape)
    put_off.add(_Put(op, lanes.storage, lanes.view.array, at, value, each, dtype))


def _ready(ptr: Any, mask: Any) -> tuple[Array, Array]:
    """The addresses of one program, and which of them to change."""
    group.order_matters()
    addresses, active = whole(ptr, mask)
    width = np_dtype(ptr.get_element_ty()).itemsize
    if not isinstance(ptr, Pointer):
        active = reachable(addresses, active, width, "atomic")
        touched = state.reach.touched
        if touched is not None:
            touched.synchronised()
        return addresses, active
    lanes = Lanes(ptr, mask, "atomic")
    if lanes.on is not None:
        active = np.ascontiguousarray(np.broadcast_to(lanes.on, addresses.shape))
    touched = state.reach.touched
    if touched is not None:
        where, who = lanes.active()
        touched.atomic(lanes.storage, lanes.view, where, who)
    return addresses, active


def _half_rmw(op: Any, pointers: Array, value: Array, active: Array, dtype: Any) -> Array:
    """16-bit float atomics, lane by lane, because two lanes may share an address."""
    flat, numbers, on = pointers.reshape(-1), value.reshape(-1), active.reshape(-1)
    old = np.zeros(flat.shape, dtype=value.dtype)
    for lane in np.flatnonzero(on):
        here = slice(lane, lane + 1)
        before = _load(flat[here], on[here], old[here], value.dtype)
        old[here] = before
        if op == _Op.XCHG:
            after = numbers[here]
        elif dtype.is_bf16():
            after = narrow(widen(before) + widen(numbers[here]))
        else:
            after = before + numbers[here]
        _store(flat[here], np.ascontiguousarray(after), on[here])
    return old.reshape(value.shape)


def _cas(self: Any, ptr: Any, cmp: Any, val: Any, sem: Any, scope: Any) -> Any:
    group.polled()
    addresses, active = _ready(ptr, None)
    dtype = cmp.dtype.scalar
    compare, swap = (np.ascontiguousarray(np.broadcast_to(item.data, addresses.shape)) for item in (cmp, val))
    native_sem = self.ir_sem_to_interpreter_sem[sem]
    if active.all():
        return Handle(_atomic_cas(addresses, compare, swap, native_sem), dtype)
    result = np.full(addresses.shape, garbage(dtype), dtype=compare.dtype)
    if active.any():
        result[active] = _atomic_cas(addresses[active], compare[active], swap[active], native_sem)
    return Handle(result, dtype)


def install() -> None:
    Builder.create_atomic_rmw = _rmw
    Builder.create_atomic_cas = _cas
