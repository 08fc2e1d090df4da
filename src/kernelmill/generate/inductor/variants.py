"""Block sizes to choose from.

All variants of a kernel compute the same; only a GPU can tell which is fastest.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Variant:
    tile: tuple[int, int, int]
    """Tile of a product or a convolution: rows, columns, and the step along the summed axis."""
    elements: int
    """Elements a block, for a pointwise kernel."""
    across: int
    """Elements of a row at a time, for a reduction along rows."""
    wide: int
    """Columns at a time, for a reduction across rows."""


VARIANTS = (
    Variant((64, 64, 32), 1024, 1024, 32),
    Variant((128, 128, 32), 512, 4096, 64),
    Variant((32, 64, 64), 256, 2048, 16),
    Variant((128, 64, 16), 2048, 512, 128),
)


def variant(number: int) -> Variant:
    return VARIANTS[number % len(VARIANTS)]


def warps(elements: int) -> int:
    """Choose the number of warps for a block of this many elements."""
    return max(1, min(16, elements // 256))
