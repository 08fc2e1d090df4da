"""Constants as written in emitted source, and the names that emitted source may not redefine."""

from __future__ import annotations

import builtins
from typing import Any

import torch

from kernelmill.decompose.record.types import Written

RESERVED = frozenset(["F", "torch", "nn", "math", "self", *dir(builtins)])


def constant(value: Any) -> str:
    """A Python literal, or expression, for the value. Raises `ValueError` if there is none."""
    if isinstance(value, Written):
        return value.text
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return f'float("{value}")'
    if isinstance(value, float) and value != value:
        return 'float("nan")'
    if isinstance(value, tuple):
        inner = ", ".join(constant(item) for item in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, list):
        return f"[{', '.join(constant(item) for item in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{constant(key)}: {constant(item)}' for key, item in value.items())}}}"
    if value is None or isinstance(value, bool | int | float | str | complex | range):
        return repr(value)
    if isinstance(value, torch.dtype | torch.memory_format | torch.layout):
        return str(value)
    if value is Ellipsis:
        return "..."
    if value in (bool, int, float):
        return str(value.__name__)
    raise ValueError(f"a {type(value).__name__} cannot be written as a constant")
