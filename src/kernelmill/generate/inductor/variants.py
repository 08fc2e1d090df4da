"""Sizes of blocks to choose from. Every variant of a kernel gives the same; which one is fastest, a GPU tells."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Variant:
    tile: tuple[int, int, int]
    """Of a product or a convolution: rows, columns, and what is summed at a time."""
    elements: int
    """Of a kernel that goes through elements, at a time."""
    across: int
    """Of a reduction along rows: elements of a row at a time."""
    wide: int
    """Of a reduction across rows: columns at a time."""


VARIANTS = (
    Variant((64, 64, 32), 1024, 1024, 32),
    Variant((128, 128, 32), 512, 4096, 64),
    Variant((32, 64, 64), 256, 2048, 16),
    Variant((128, 64, 16), 2048, 512, 128),
)


def variant(number: int) -> Variant:
    return VARIANTS[number % len(VARIANTS)]


def warps(elements: int) -> int:
    """For a block of this many elements."""
    return max(1, min(16, elements // 256))
