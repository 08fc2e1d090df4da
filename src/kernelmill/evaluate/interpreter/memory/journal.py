"""What the programs that run together have changed, so that it can be taken back."""

from __future__ import annotations

from typing import Any

from kernelmill.evaluate.interpreter.handles import Array
from kernelmill.evaluate.interpreter.programs import TooLarge, group

_MOST_BYTES = 1 << 28
"""What one batch may keep: with more, fewer programs run together."""

Where = Any
"""A slice, or an array of indices."""


class Journal:
    def __init__(self) -> None:
        self._entries: list[tuple[Array, Where, Array]] = []
        self._bytes = 0

    def begin(self) -> None:
        self._entries.clear()
        self._bytes = 0

    def set(self, array: Array, where: Where, new: Any) -> None:
        """array[where] = new"""
        if group.together:
            old = array[where].copy() if isinstance(where, slice) else array[where]
            self._entries.append((array, where, old))
            self.keeps(old.nbytes + (0 if isinstance(where, slice) else where.nbytes))
        array[where] = new

    def keeps(self, size: int) -> None:
        """So many bytes are kept until the end of the batch."""
        self._bytes += size
        if self._bytes > _MOST_BYTES and group.count > 1:
            raise TooLarge(max(1, group.count // 4))

    def mark(self) -> int:
        return len(self._entries)

    def undo(self, mark: int = 0) -> None:
        """Take back all changes since `mark`."""
        while len(self._entries) > mark:
            array, where, old = self._entries.pop()
            array[where] = old


journal = Journal()
