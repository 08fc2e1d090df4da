"""Which lane of a program wrote an element, in a strict run: other lanes may read it after a barrier only.

Lanes of one program are threads on a GPU. Only blocks of one shape are compared, whose lanes are the same threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from triton.runtime import interpreter as stock

Array = np.ndarray[Any, Any]


class Written:
    """What one launch has written since the last barrier."""

    def __init__(self) -> None:
        self._by: dict[tuple[Any, str], tuple[Array, Array, Array]] = {}
        """By storage and type: the lane, the program and the number of lanes of each element's last store."""

    def clear(self) -> None:
        self._by.clear()

    def store(self, storage: Any, array: Array, where: Any, who: Any, ids: Array, lanes: int) -> None:
        key = (storage, array.dtype.str)
        if key not in self._by:
            made = [np.zeros(len(array), dtype=np.int32) for _ in range(3)]
            self._by[key] = (made[0], made[1], made[2])
        for held, value in zip(self._by[key], (ids + 1, who, lanes), strict=True):
            held[where] = value

    def others(
        self, storage: Any, array: Array, where: Any, who: Any, ids: Array, lanes: int
    ) -> Array | None:
        """Which of these lanes read what another lane of their program has written; None if there are none."""
        known = self._by.get((storage, array.dtype.str))
        if known is None:
            return None
        lane, program, size = (held[where] for held in known)
        wrong = (lane > 0) & (lane != ids + 1) & (program == who) & (size == lanes)
        return wrong if wrong.any() else None


def ids_of(at: Array, on: Array | None, shape: tuple[int, ...]) -> Array | None:
    """The number of each active lane within its block; None for a block whose lanes share addresses."""
    if at.shape[1:] != tuple(shape) or not shape:
        return None
    numbers = np.arange(int(np.prod(shape)), dtype=np.int32).reshape(1, *shape)
    each = np.broadcast_to(numbers, at.shape)
    return each.reshape(-1) if on is None else each[np.broadcast_to(on, at.shape)]


def install(reach: Any) -> None:
    """Have barriers forget what was written. `reach` gives what runs."""
    barrier = stock.InterpreterBuilder.create_barrier

    def create_barrier(self: Any) -> Any:
        reach().written.clear()
        return barrier(self)

    stock.InterpreterBuilder.create_barrier = create_barrier
