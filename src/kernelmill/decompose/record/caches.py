"""Clear the `functools.lru_cache` caches of imported packages.

They outlive a run and carry its leftovers into the next one: tensors of another kind, sizes that remember
their origin.
"""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

_KEPT = {"torch", "torchgen", "numpy", "sympy", "kernelmill", "triton", *sys.stdlib_module_names}
"""Packages whose caches hold nothing of a model's run and are slow to refill."""
_CACHE = type(functools.lru_cache(int))
_known: dict[ModuleType, list[Any]] = {}
_seen: list[ModuleType] = []
"""All modules at the time of the last search for caches."""


def clear_caches() -> None:
    """Clear the caches of all package functions."""
    modules = list(sys.modules.values())
    if len(modules) != len(_seen) or not all(map(operator.is_, modules, _seen)):
        _look(dict(sys.modules))
        _seen[:] = modules
    for caches in _known.values():
        for cache in caches:
            cache.cache_clear()


def _look(modules: dict[str, ModuleType]) -> None:
    packages = {
        module: name
        for name, module in modules.items()
        if name.partition(".")[0] not in _KEPT and isinstance(module, ModuleType)
    }
    for module in list(_known):
        if module not in packages:
            del _known[module]
    for module in packages:
        if module not in _known:
            _known[module] = list(_caches(module))


def _caches(module: ModuleType) -> Iterator[Any]:
    """The caches of a module's functions, and of its classes' methods."""
    for value in list(vars(module).values()):
        if isinstance(value, _CACHE):
            yield value
        elif isinstance(value, type) and value.__module__ == module.__name__:
            yield from (one for one in list(vars(value).values()) if isinstance(one, _CACHE))
