"""Constants as written in emitted source, and the names that emitted source may not redefine."""

from __future__ import annotations

import builtins
from collections.abc import Callable
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
    if (nested := structure(value, constant)) is not None:
        return nested
    if value is None or isinstance(value, bool | int | float | str | complex | range):
        return repr(value)
    if isinstance(value, torch.dtype | torch.memory_format | torch.layout):
        return str(value)
    if value is Ellipsis:
        return "..."
    if value in (bool, int, float):
        return str(value.__name__)
    raise ValueError(f"a {type(value).__name__} cannot be written as a constant")


def structure(tree: Any, text: Callable[[Any], str]) -> str | None:
    """A tuple, list, dict or slice as an expression, with `text` for what is inside; None for anything else."""
    if isinstance(tree, tuple):
        return f"({', '.join(map(text, tree))}{',' if len(tree) == 1 else ''})"
    if isinstance(tree, list):
        return f"[{', '.join(map(text, tree))}]"
    if isinstance(tree, dict):
        return f"{{{', '.join(f'{text(key)}: {text(item)}' for key, item in tree.items())}}}"
    if isinstance(tree, slice):
        return f"slice({', '.join(map(text, (tree.start, tree.stop, tree.step)))})"
    return None
