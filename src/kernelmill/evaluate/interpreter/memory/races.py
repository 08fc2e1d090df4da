"""Who touched what in one launch: races between programs, and whether programs may run together.

Each storage has a shadow: which program last wrote a location in this launch, and which read it. If one
program writes a location and another reads it, or writes another value, the result depends on their order.

Programs that run together must not come to this: `OrderMatters` is raised, and they run one by one. Programs
that run one by one go on, and a race is reported, because on a GPU they run in any order. A program that has
synchronised (an atomic operation, a volatile load, a load of what others change by atomics) is no longer
watched, because its order cannot be checked here. Not covered: races between the lanes of one program.

Most storages are only read and have no shadow: it is created at the first store. A storage that a kernel has
once stored to has a shadow from the start of the kernel's next launch. From then on, reads before the first
store also count.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelmill.evaluate.interpreter.handles import Array, Storage, View
from kernelmill.evaluate.interpreter.memory.journal import Where, journal
from kernelmill.evaluate.interpreter.observe import Race, observer
from kernelmill.evaluate.interpreter.operations.floats import widen
from kernelmill.evaluate.interpreter.programs import Grid, OrderMatters, Untracked, group, position
from kernelmill.evaluate.interpreter_gaps import TWO_LANES

_NOBODY = 0
MANY = -1
"""More than one program."""
_ATOMIC = -2
"""Changed by atomic operations."""
_CLOSE, _CLOSE_HALF, _TINY = 1e-3, 2e-2, 1e-6
"""Tolerances: two programs that compute the same number may round it differently, which is not a race."""

Who = Any
"""A program's number, counted from 1, or one for each lane, or MANY for all that run."""


class _Shadow:
    """Which program touched a storage, in units of 2**shift bytes."""

    def __init__(self, storage: Storage) -> None:
        width = min(dtype.itemsize for _, dtype in storage.views)
        self.shift = width.bit_length() - 1
        units = (storage.high - storage.low + width - 1) >> self.shift
        # Zeroed pages cost nothing until they are touched.
        self.writer: Array = np.zeros(units, dtype=np.int32)
        self.was_read = False
        self.reader: Array = np.zeros(units, dtype=np.int32)

    def units(self, view: View, lanes: Where) -> Where:
        """The units of each lane: as many rows as lanes, if a lane has several."""
        width = view.array.itemsize
        if width >> self.shift == 0:
            self._refine(width)
        if width == 1 << self.shift and not view.offset % width:
            before = view.offset >> self.shift
            if not before:
                return lanes
            if isinstance(lanes, slice):
                return slice(lanes.start + before, lanes.stop + before)
            return lanes + before
        if isinstance(lanes, slice):
            lanes = np.arange(lanes.start, lanes.stop)
        first = (lanes * width + view.offset) >> self.shift
        last = (lanes * width + view.offset + width - 1) >> self.shift
        many = int((last - first).max()) + 1 if len(lanes) else 1
        return first if many == 1 else np.minimum(first[:, None] + np.arange(many), last[:, None])

    def _refine(self, width: int) -> None:
        """Split the units, because the same memory is now accessed in smaller pieces."""
        if group.together:
            raise OrderMatters
        shift = width.bit_length() - 1
        times = 1 << (self.shift - shift)
        self.writer, self.reader = np.repeat(self.writer, times), np.repeat(self.reader, times)
        self.shift = shift


class Touched:
    """Watches one launch. `enter` is called before each group of programs.

    `written` names the arguments that this kernel is known to store to; it grows.
    """

    def __init__(self, kernel: str, grid: Grid, storages: dict[str, Storage], written: set[str]) -> None:
        self._kernel, self._grid, self._storages, self._written = kernel, grid, storages, written
        self._shadows: dict[Storage, _Shadow] = {}
        self._expected = {storages[name] for name in written & storages.keys()}
        self._untracked: set[Storage] = set()
        self.watching = False

    def begin(self) -> None:
        """A batch begins."""
        self._untracked.clear()

    def enter(self) -> None:
        self.watching = True

    def synchronised(self) -> None:
        self.watching = False

    def tracks(self, storage: Storage) -> bool:
        """Whether loads from this storage are of interest."""
        if storage in self._shadows or storage in self._expected:
            return True
        self._untracked.add(storage)
        return False

    def load(self, storage: Storage, view: View, lanes: Where, who: Who) -> None:
        """Check a load by these lanes of the view."""
        shadow = self._shadow(storage)
        units = shadow.units(view, lanes)
        who = _rows(who, units)
        shadow.was_read = True
        writer = shadow.writer[units]
        if writer.any():
            if (writer == _ATOMIC).any():
                group.order_matters()
                self.synchronised()
                return
            other = _others(writer, who)
            if other.any():
                group.order_matters()
                self._report("read after write", shadow, storage, writer, units, other, who)
        reader = shadow.reader[units]
        mine = np.where((reader == who) | (reader == _NOBODY), who, MANY) if reader.any() else who
        journal.set(shadow.reader, units, mine)
        if group.count > 1:
            several = shadow.reader[units] != mine
            if several.any():
                journal.set(shadow.reader, _indices(units)[several], MANY)

    def store(self, storage: Storage, view: View, lanes: Where, who: Who, value: Array, dtype: Any) -> None:
        """Store, and check it. `value` has one element per lane."""
        self._changes(storage)
        shadow = self._shadow(storage)
        units = shadow.units(view, lanes)
        rows = _rows(who, units)
        self._learn(storage)
        writer = shadow.writer[units]
        self._overwritten(
            "write after write", shadow, storage, view, lanes, units, writer, rows, value, dtype
        )
        if shadow.was_read:
            reader = shadow.reader[units]
            self._overwritten(
                "write after read", shadow, storage, view, lanes, units, reader, rows, value, dtype
            )
        journal.set(shadow.writer, units, rows)
        journal.set(view.array, lanes, value)
        if observer.strict and not isinstance(lanes, slice):
            self._twice(shadow, storage, view, lanes, units, rows, value, dtype)
        if group.count > 1 and not isinstance(lanes, slice):
            several = shadow.writer[units] != rows
            if several.any() and not _equal(view.array[lanes], value).all():
                raise OrderMatters

    def _twice(
        self,
        shadow: _Shadow,
        storage: Storage,
        view: View,
        lanes: Where,
        units: Where,
        who: Who,
        value: Array,
        dtype: Any,
    ) -> None:
        """Check that no two lanes of a store put different values into one place: either may be the last."""
        differ = ~_same(value, view.array[lanes], dtype)
        if differ.any():
            group.order_matters()
            wrong = differ if units.ndim == 1 else np.broadcast_to(differ[:, None], units.shape)
            self._report(TWO_LANES, shadow, storage, shadow.writer[units], units, wrong, who)

    def _overwritten(
        self,
        kind: str,
        shadow: _Shadow,
        storage: Storage,
        view: View,
        lanes: Where,
        units: Where,
        before: Array,
        who: Who,
        value: Array,
        dtype: Any,
    ) -> None:
        """Check lanes that another program touched `before`: they may only store what is there."""
        if not before.any():
            return
        other = _others(before, who)
        if not other.any():
            return
        if group.together and (before == _ATOMIC).any():
            raise OrderMatters
        touched = other if other.ndim == 1 else other.any(axis=1)
        new, old = value[touched], view.array[lanes][touched]
        if group.together:
            if not _equal(new, old).all():
                raise OrderMatters
            return
        differ = np.zeros(touched.shape, dtype=bool)
        differ[touched] = ~_same(new, old, dtype)
        if differ.any():
            wrong = differ if other.ndim == 1 else differ[:, None] & other
            self._report(kind, shadow, storage, before, units, wrong, who)

    def atomic(self, storage: Storage, view: View, lanes: Where, who: Who) -> None:
        """Check an atomic operation.

        Atomics do not conflict with each other, but with an earlier plain store by another program. Programs
        that run together must also not have read the location.
        """
        self._changes(storage)
        shadow = self._shadow(storage)
        units = shadow.units(view, lanes)
        who = _rows(who, units)
        self._learn(storage)
        writer = shadow.writer[units]
        stored = (writer != _NOBODY) & (writer != _ATOMIC)
        if group.together:
            # Also a location that only this program stored to: the operation is put off, its next load is not.
            if stored.any() or (shadow.was_read and _others(shadow.reader[units], who).any()):
                raise OrderMatters
        elif self.watching:
            plain = stored & _others(writer, who)
            if plain.any():
                self._report("atomic after write", shadow, storage, writer, units, plain, who)
        journal.set(shadow.writer, units, np.where(stored, writer, _ATOMIC))
        self.synchronised()

    def _changes(self, storage: Storage) -> None:
        if group.together and storage in self._untracked:
            self._learn(storage)
            raise Untracked

    def _shadow(self, storage: Storage) -> _Shadow:
        shadow = self._shadows.get(storage)
        if shadow is None:
            shadow = self._shadows[storage] = _Shadow(storage)
        return shadow

    def _learn(self, storage: Storage) -> None:
        if storage not in self._expected:
            self._expected.add(storage)
            self._written.update(name for name, one in self._storages.items() if one is storage)

    def _report(
        self,
        kind: str,
        shadow: _Shadow,
        storage: Storage,
        before: Array,
        units: Where,
        wrong: Array,
        who: Who,
    ) -> None:
        first = int(np.flatnonzero(wrong)[0])
        other = int(before.reshape(-1)[first])
        observer.race(
            Race(
                kind=kind,
                kernel=self._kernel,
                programs=(self._program(other), self._program(int(np.max(who)))),
                argument=storage.name,
                offset=int(_indices(units).reshape(-1)[first]) << shadow.shift,
            )
        )

    def _program(self, number: int) -> Grid | None:
        return None if number <= _NOBODY else position(self._grid, number)


def _others(before: Array, who: Who) -> Array:
    """Where another program was before. Many programs are others, also to the same many."""
    touched: Array = np.not_equal(before, _NOBODY)
    if isinstance(who, int) and who == MANY:
        return touched
    touched &= before != who
    return touched


def _rows(who: Who, units: Where) -> Who:
    """The programs of units with several columns."""
    return who[:, None] if isinstance(who, np.ndarray) and getattr(units, "ndim", 1) == 2 else who


def _indices(units: Where) -> Array:
    return np.arange(units.start, units.stop) if isinstance(units, slice) else units


def _equal(new: Array, old: Array) -> Array:
    """Which have the same bits."""
    bits = np.dtype(f"u{new.dtype.itemsize}")
    return np.asarray(new.view(bits) == old.view(bits))


def _same(new: Array, old: Array, dtype: Any) -> Array:
    if not dtype.is_floating():
        return np.asarray(new == old)
    bound = _CLOSE_HALF if dtype.primitive_bitwidth <= 16 else _CLOSE
    if dtype.is_bf16():
        new, old = widen(new), widen(old)
    elif dtype.is_fp8():
        return np.asarray(new == old)
    return np.isclose(new, old, rtol=bound, atol=_TINY, equal_nan=True)
