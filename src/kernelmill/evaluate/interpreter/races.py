"""Detect races between the programs of one launch, which run sequentially here and in any order on a GPU.

Each storage has a shadow: which program last wrote a location in this launch, and which read it. If one
program writes a location and another reads it, or writes another value, that is a race. A program that has
synchronised (an atomic operation, a volatile load, a load of what others change by atomics) is no longer
watched, because its order cannot be checked here. Not covered: races between the lanes of one program, and
those through pointers passed as integers.

Most storages are only read and have no shadow: it is created at the first store. A storage that a kernel has
once stored to has a shadow from the start of the kernel's next launch. From then on, reads before the first
store also count.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelmill.evaluate.interpreter.numerics import Array, widen
from kernelmill.evaluate.interpreter.observe import Race, observer

Range = tuple[int, int]
_NOBODY = 0
_MANY = -1
"""More than one reader."""
_ATOMIC = -2
"""Changed by atomic operations."""
_CLOSE, _CLOSE_HALF, _TINY = 1e-3, 2e-2, 1e-6
"""Tolerances: two programs that compute the same number may round it differently, which is not a race."""


class _Shadow:
    """Which program touched a storage, in units of 2**shift bytes. Programs count from 1."""

    def __init__(self, origin: Range, width: int) -> None:
        self.low = np.uint64(origin[0])
        self.shift = width.bit_length() - 1
        units = (origin[1] - origin[0] + width - 1) >> self.shift
        # Zeroed pages cost nothing until they are touched.
        self.writer: Array = np.zeros(units, dtype=np.int32)
        self.was_read = False
        self.reader: Array = np.zeros(units, dtype=np.int32)

    def places(self, pointers: Array, width: int) -> Array:
        """The first unit of each lane."""
        if width >> self.shift == 0:
            self._refine(width)
        return ((pointers - self.low) >> np.uint64(self.shift)).view(np.int64)

    def spread(self, places: Array, width: int) -> Array:
        """All units of each lane, one row per lane."""
        units = width >> self.shift
        return places if units == 1 else places[:, None] + np.arange(units)

    def _refine(self, width: int) -> None:
        """Split the units, because the same memory is now accessed in smaller pieces."""
        shift = width.bit_length() - 1
        times = 1 << (self.shift - shift)
        self.writer, self.reader = np.repeat(self.writer, times), np.repeat(self.reader, times)
        self.shift = shift


class Races:
    """Watches one launch. `enter` is called before each program.

    `written` names the arguments that this kernel is known to store to; it grows.
    """

    def __init__(
        self, kernel: str, grid: tuple[int, int, int], storages: dict[str, Range], written: set[str]
    ) -> None:
        self._kernel, self._grid, self._storages, self._written = kernel, grid, storages, written
        self._shadows: dict[Range, _Shadow] = {}
        self._expected = {storages[name] for name in written & storages.keys()}
        self._me = 0
        self.watching = False

    def enter(self, x: int, y: int, z: int) -> None:
        self._me = 1 + z + self._grid[2] * (y + self._grid[1] * x)
        self.watching = True

    def synchronised(self) -> None:
        self.watching = False

    def load(self, pointers: Array, active: Array, width: int, origin: Range) -> None:
        if origin not in self._shadows and origin not in self._expected:
            return
        shadow, at = self._at(pointers, active, width, origin)
        if not at.size:
            return
        shadow.was_read = True
        spread = shadow.spread(at, width)
        writer = shadow.writer[spread]
        if writer.any():
            if (writer == _ATOMIC).any():
                self.synchronised()
                return
            other = (writer != self._me) & (writer != _NOBODY)
            if other.any():
                self._report("read after write", shadow, origin, writer, spread, other)
        reader = shadow.reader[spread]
        if reader.any():
            shadow.reader[spread] = np.where((reader == self._me) | (reader == _NOBODY), self._me, _MANY)
        else:
            shadow.reader[spread] = self._me

    def store(
        self, pointers: Array, active: Array, width: int, origin: Range, value: Array, now: Any, dtype: Any
    ) -> None:
        """Check a store. Call this before the store; `now(pointers)` returns the current values."""
        shadow, at = self._at(pointers, active, width, origin)
        if not at.size:
            return
        spread = shadow.spread(at, width)
        self._learn(origin)
        writer = reader = shadow.writer[spread]
        rewritten, overtaken = _others(writer, self._me), None
        if shadow.was_read:
            reader = shadow.reader[spread]
            overtaken = _others(reader, self._me)
        for kind, other, who in (
            ("write after write", rewritten, writer),
            ("write after read", overtaken, reader),
        ):
            if other is None:
                continue
            lanes = other if other.ndim == 1 else other.any(axis=1)
            new, old = value[active][lanes], now(pointers[active][lanes])
            differ = np.zeros(lanes.shape, dtype=bool)
            differ[lanes] = ~_same(new, old, dtype)
            if differ.any():
                wrong = differ if other.ndim == 1 else differ[:, None] & other
                self._report(kind, shadow, origin, who, spread, wrong)
        shadow.writer[spread] = self._me

    def atomic(self, pointers: Array, active: Array, width: int, origin: Range | None) -> None:
        """Check an atomic.

        Atomics do not conflict with each other, but with an earlier plain store by another program.
        """
        if origin is not None:
            shadow, at = self._at(pointers, active, width, origin)
            spread = shadow.spread(at, width)
            writer = shadow.writer[spread]
            plain = (writer > _NOBODY) & (writer != self._me)
            if self.watching and plain.any():
                self._report("atomic after write", shadow, origin, writer, spread, plain)
            shadow.writer[spread] = np.where(writer > _NOBODY, writer, _ATOMIC)
        self.synchronised()

    def _at(self, pointers: Array, active: Array, width: int, origin: Range) -> tuple[_Shadow, Array]:
        shadow = self._shadows.get(origin)
        if shadow is None:
            shadow = self._shadows[origin] = _Shadow(origin, width)
        return shadow, shadow.places(pointers[active], width)

    def _learn(self, origin: Range) -> None:
        if origin not in self._expected:
            self._expected.add(origin)
            self._written.update(name for name, range_ in self._storages.items() if range_ == origin)

    def _report(
        self, kind: str, shadow: _Shadow, origin: Range, who: Array, spread: Array, wrong: Array
    ) -> None:
        first = int(np.flatnonzero(wrong)[0])
        other = int(who.reshape(-1)[first])
        name = next((name for name, range_ in self._storages.items() if range_ == origin), "")
        observer.race(
            Race(
                kind=kind,
                kernel=self._kernel,
                programs=(self._program(other), self._program(self._me)),
                argument=name,
                offset=int(spread.reshape(-1)[first]) << shadow.shift,
            )
        )

    def _program(self, number: int) -> tuple[int, int, int] | None:
        if number <= _NOBODY:
            return None
        rest, z = divmod(number - 1, self._grid[2])
        x, y = divmod(rest, self._grid[1])
        return x, y, z


def _others(who: Array, me: int) -> Array | None:
    """Where another program was, or None if there is no such place."""
    if not who.any():
        return None
    other = (who != me) & (who != _NOBODY)
    return other if other.any() else None


def _same(new: Array, old: Array, dtype: Any) -> Array:
    if not dtype.is_floating():
        return np.asarray(new == old)
    bound = _CLOSE_HALF if dtype.primitive_bitwidth <= 16 else _CLOSE
    if dtype.is_bf16():
        new, old = widen(new), widen(old)
    elif dtype.is_fp8():
        return np.asarray(new == old)
    return np.isclose(new, old, rtol=bound, atol=_TINY, equal_nan=True)
