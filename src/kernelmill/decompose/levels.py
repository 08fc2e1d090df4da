"""The levels of parts, and the folders of their files."""

from __future__ import annotations

from typing import Literal

Level = Literal["model", "layer", "fusion", "kernel"]
FOLDERS: dict[Level, str] = {
    "model": "level_3_model",
    "layer": "level_2_layer",
    "fusion": "level_1_fusion",
    "kernel": "level_0_kernel",
}
LEVELS: tuple[Level, ...] = tuple(reversed(FOLDERS))
"""From the smallest parts to the largest."""
