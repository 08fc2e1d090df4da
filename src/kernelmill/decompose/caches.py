"""Caches of packages (`functools.lru_cache`), which outlive a run and carry what it left in them into the next: tensors of another kind,
sizes that remember where they came from.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

_KEPT = {"torch", "torchgen", "numpy", "sympy", "kernelmill", "triton", *sys.stdlib_module_names}
"""They keep nothing of a model's run, and are slow to fill."""
_CACHE = type(functools.lru_cache(int))
_known: dict[ModuleType, list[Any]] = {}


def clear_caches() -> None:
    """Forget what functions of packages remember."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in _KEPT or not isinstance(module, ModuleType):
            continue
        if module not in _known:
            _known[module] = list(_caches(module))
        for cache in _known[module]:
            cache.cache_clear()


def _caches(module: ModuleType) -> Iterator[Any]:
    """Of its functions, and of the methods of its classes."""
    for value in list(vars(module).values()):
        if isinstance(value, _CACHE):
            yield value
        elif isinstance(value, type) and value.__module__ == module.__name__:
            yield from (one for one in list(vars(value).values()) if isinstance(one, _CACHE))
