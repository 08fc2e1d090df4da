"""Paths of the files that ship with kernelmill: prompts and bundled data.

In a checkout they are at the top of the repository; in an installed wheel, under `kernelmill/bundled`.
"""

from __future__ import annotations

from pathlib import Path

from kernelmill.errors import ConfigError

_PACKAGE = Path(__file__).resolve().parents[1]


def bundled(name: str) -> Path:
    """The path of a bundled file or folder, such as `prompts/rate.md` or `data/problems`."""
    for root in (_PACKAGE / "bundled", _PACKAGE.parents[1]):
        if (root / name).exists():
            return root / name
    raise ConfigError(f"{name} does not ship with this installation: install kernelmill again")
