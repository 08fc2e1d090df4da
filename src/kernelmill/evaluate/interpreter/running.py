"""Run the programs of a grid: as many together as go, in batches, else one by one.

The result is that of the programs one after another, in the order of the grid (or in the opposite one).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np

from kernelmill.evaluate.interpreter.handles import Array
from kernelmill.evaluate.interpreter.memory.access import Reach
from kernelmill.evaluate.interpreter.memory.atomics import put_off
from kernelmill.evaluate.interpreter.memory.journal import journal
from kernelmill.evaluate.interpreter.memory.races import Touched
from kernelmill.evaluate.interpreter.programs import (
    ELEMENTS,
    MOST_ELEMENTS,
    Diverged,
    Grid,
    OrderMatters,
    TooLarge,
    Untracked,
    group,
    position,
)

_MOST_KINDS = 64
"""Of programs in a batch."""
_FASTER = 0.9
"""A batch of twice as many programs is worth it if each of them takes less than this share of the time."""


class Programs:
    """The programs of one launch. `program` runs those of the current group."""

    def __init__(
        self, program: Callable[[], object], grid: Grid, reach: Reach, touched: Touched | None
    ) -> None:
        self._program, self._grid, self._reach, self._touched = program, grid, reach, touched
        self._fits = ELEMENTS
        """How many programs may be in one group."""
        self._pace: float | None = math.inf
        """Seconds for each program of the last batch; None if larger batches are not faster any more."""
        self._alike: int | None = None
        """The axis of the grid along which programs part: those at the same place of it go together."""
        self._axes = sorted(
            (axis for axis in range(3) if 1 < grid[axis] < math.prod(grid)), key=lambda axis: grid[axis]
        )
        """The axes that may be so."""

    def run(self, numbers: Array, together: bool) -> bool:
        """Run the programs with these numbers. Returns whether they could all run together.

        Without `together` they are not tried together.
        """
        done = 0
        group.limit = ELEMENTS
        self._fits = min(self._fits, len(numbers))
        while done < len(numbers):
            if not together or self._fits == 1:
                self._one_by_one(numbers[done:])
                break
            batch = numbers[done : done + self._fits * self._kinds()]
            began = time.perf_counter()
            try:
                self._batch(batch)
                self._adapt((time.perf_counter() - began) / len(batch))
            except TooLarge as error:
                self._take_back()
                self._fits = min(error.fits, self._fits - 1)
                continue
            except Untracked:
                self._take_back()
                continue
            except OrderMatters:
                self._take_back()
                together = False
                continue
            except Exception:  # noqa: BLE001
                # It comes again, from the program that makes it and after the programs before that one.
                self._take_back()
                self._one_by_one(batch)
            done += len(batch)
        return together

    def _adapt(self, seconds: float) -> None:
        """Let the next batch be larger, as long as that saves time: small blocks cost mostly Python's time."""
        if self._pace is None:
            return
        if seconds < _FASTER * self._pace and group.limit < MOST_ELEMENTS:
            factor, self._pace = 2.0, seconds
        else:
            factor, self._pace = 1.0 if seconds < self._pace else 0.5, None
        group.limit = int(group.limit * factor)
        self._fits = max(2, int(self._fits * factor))

    def _kinds(self) -> int:
        return 1 if self._alike is None else min(self._grid[self._alike], _MOST_KINDS)

    def _groups(self, numbers: Array) -> list[Array]:
        """The groups to begin with."""
        if self._alike is None:
            return [numbers]
        kinds = _split(numbers, self._places(numbers, self._alike))
        return [kind[at : at + self._fits] for kind in kinds for at in range(0, len(kind), self._fits)]

    def _places(self, numbers: Array, axis: int) -> Array:
        return np.asarray(position(self._grid, numbers)[axis])

    def _learn(self, parts: list[Array], parted: int) -> None:
        """Find the axis along which the programs of a batch have parted, so that the next are grouped by it."""
        if not parted:
            return
        if self._alike is not None:
            self._axes.remove(self._alike)  # it was another one
            self._alike = None
        for axis in self._axes:
            places = [np.unique(self._places(part, axis)) for part in parts]
            if len(np.unique(np.concatenate(places))) == sum(map(len, places)):
                self._alike = axis
                break

    def _one_by_one(self, numbers: Array) -> None:
        for at in range(len(numbers)):
            self._enter(numbers[at : at + 1], together=False)
            self._program()

    def _batch(self, numbers: Array) -> None:
        journal.begin()
        if self._touched is not None:
            self._touched.begin()
        groups, parts, parted = self._groups(numbers), [], 0
        while groups:
            part = groups.pop()
            marks = journal.mark(), put_off.mark(), self._reach.mark()
            self._enter(part, together=True)
            try:
                self._program()
                parts.append(part)
            except Diverged as error:
                self._take_back(*marks)
                groups.extend(_split(part, error.values))
                parted += 1
        backwards = bool(numbers[0] > numbers[-1])
        put_off.apply(backwards)
        self._reach.report(backwards)
        journal.begin()
        self._learn(parts, parted)

    def _enter(self, numbers: Array, together: bool) -> None:
        group.enter(self._grid, numbers, together)
        if self._touched is not None:
            self._touched.enter()

    def _take_back(self, journaled: int = 0, deferred: int = 0, recorded: int = 0) -> None:
        journal.undo(journaled)
        put_off.forget(deferred)
        self._reach.forget(recorded)


def _split(numbers: Array, values: Array) -> list[Array]:
    """The programs with the same value together, those that come first last."""
    kinds, which = np.unique(values, return_inverse=True)
    parts = [numbers[which == kind] for kind in range(len(kinds))]
    return sorted(parts, key=lambda part: -int(part[0]))
