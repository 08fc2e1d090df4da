"""The programs of a launch that run together, and what makes them run apart.

Python's control flow has to go the same way for all programs of a group. Where a condition or the length of
a loop differs, `Diverged` carries the differing values: what the group has written is taken back, the group
is split by these values, and each part runs from the beginning.

The result must be that of the programs one after another. What depends on their order (`OrderMatters`) takes
the whole batch back, and its programs run one by one.

A batch is bounded in the largest block that its programs make together (`TooLarge`): by `ELEMENTS` at first, and
by up to `MOST_ELEMENTS` if that takes less time for each program (`running`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as stock

from kernelmill.evaluate.interpreter.handles import Array, Handle
from kernelmill.evaluate.interpreter_gaps import Unsupported

ELEMENTS = 1 << 18
"""Elements of one block over all programs of a batch: temporary arrays of this size stay in a processor's cache."""
MOST_ELEMENTS = 1 << 20
_SPINS = 4096
"""Iterations of `while` loops with loads in them, after which one may be waiting for another program."""
_SPINS_ALONE = 1 << 16
"""Iterations with an atomic or a volatile load in them, in a program that runs alone: what it waits for will not
come. A loop with none of these waits for nobody, and if it never ends, its time does.
"""

Grid = tuple[int, int, int]


class Apart(BaseException):
    """The programs cannot run together. Not an Exception, so that nothing in a kernel handles it."""


class Diverged(Apart):
    """Control flow depends on these values, which differ between the programs."""

    def __init__(self, values: Array) -> None:
        super().__init__()
        self.values = values


class OrderMatters(Apart):
    """The result depends on the order of the programs."""


class Untracked(Apart):
    """A storage is changed that the batch has read without keeping track: run it again, keeping track."""


class TooLarge(Apart):
    """The programs together make a block of too many elements. `fits` is how many of them may run together."""

    def __init__(self, fits: int) -> None:
        super().__init__()
        self.fits = fits


class Group:
    """The programs that run now: `numbers` count from 1, in the order of a launch."""

    def __init__(self) -> None:
        self.grid: Grid = (1, 1, 1)
        self.numbers: Array = np.ones(1, dtype=np.int32)
        self.count = 1
        self.together = False
        """Whether these programs, and other groups of the same batch, must give what they give one by one."""
        self.loads = 0
        """Loads and atomics so far: a loop with one of them may wait for another program."""
        self.polls = 0
        """Of these, atomics and volatile loads."""
        self._spins = self._polling = 0
        self._loads_before = self._polls_before = 0
        self._ids: tuple[Array, Array, Array] | None = None
        self.limit = ELEMENTS
        """Elements of the largest block that the programs may make together."""
        self._most = ELEMENTS

    def enter(self, grid: Grid, numbers: Array, together: bool) -> None:
        self.grid, self.numbers, self.count, self.together = grid, numbers, len(numbers), together
        self._ids = None
        self._spins = self._polling = 0
        self._most = self.limit // self.count
        # For messages: the first program of the group.
        stock.interpreter_builder.grid_idx = position(grid, int(numbers[0]))

    def ids(self, axis: int) -> Array:
        """The program ids along an axis: one value if they are all the same."""
        if self._ids is None:
            places = position(self.grid, self.numbers)
            self._ids = tuple(one[:1] if (one == one[0]).all() else one for one in places)
        return self._ids[axis]

    def check_size(self, shape: Any) -> None:
        """Raise TooLarge if a block of this shape is too large for so many programs."""
        if self.count > 1:
            elements = math.prod(shape)
            if elements > self._most:
                raise TooLarge(max(1, self.limit // elements))

    def one(self, data: Array) -> Any:
        """The value of a scalar, which must be the same for all programs."""
        first = data.flat[0]
        if data.shape[0] > 1 and (data.reshape(-1) != first).any():
            raise Diverged(data.reshape(-1))
        return first

    def spun(self) -> None:
        """Called before each iteration of a `while` loop: it may be waiting for another program."""
        if self.loads == self._loads_before:
            return
        self._loads_before = self.loads
        self._spins += 1
        if self.together and self._spins > _SPINS:
            raise OrderMatters
        self._polling += self.polls != self._polls_before
        self._polls_before = self.polls
        if self._polling > _SPINS_ALONE and math.prod(self.grid) > 1:
            raise Unsupported("waiting")

    def polled(self) -> None:
        """Called for each atomic and each volatile load."""
        self.loads += 1
        self.polls += 1

    def order_matters(self) -> None:
        """Give up running together; programs one by one have an order."""
        if self.together:
            raise OrderMatters


group = Group()


def position(grid: Grid, number: Any) -> Any:
    """The position in the grid of a program's number, or of an array of them."""
    rest, z = divmod(number - 1, grid[2])
    x, y = divmod(rest, grid[1])
    return x, y, z


class Deferred(Handle):
    """What an atomic operation returns while programs run together: it depends on their order.

    Most kernels never look at it.
    """

    __slots__ = ()

    def __init__(self, dtype: Any, shape: Any) -> None:
        self.dtype, self.shape, self.attr = dtype, shape, {}

    @property
    def data(self) -> Array:  # type: ignore[override]
        raise OrderMatters


def _program_id(self: Any, axis: int) -> Handle:
    return Handle(group.ids(axis), tl.int32)


def install() -> None:
    stock.InterpreterBuilder.create_get_program_id = _program_id
