"""Opaque modules: recorded as one call, like a leaf module in `torch.fx`, and kept whole in emitted files.

One run of such a module does not describe another. The reasons:

    values read        its Python code reads a tensor's values: `if x.sum() > 0`
    size by values     a call returns a tensor whose size depends on values: `nonzero`
    state written      it writes into a weight or buffer, which the next run would see
    transformed        it transforms functions (`torch.vmap`), whose calls see other shapes
    autocast           it runs under autocast, which changes types
    stale view         it reads a tensor after writing to it through another view
    outside numbers    it makes many numbers without torch: a table by numpy

The smallest such module of the author's is one call in the record, if it can be created again from constants;
otherwise the whole model is.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn

from kernelmill.decompose.literals import constant
from kernelmill.decompose.record.types import Written

_MADE = "_kernelmill_made_with"
_CONSTANTS = (int, float, str, bool, type(None))
_READS_VALUES = frozenset([
    "item", "tolist", "numpy", "__bool__", "__int__", "__float__", "__index__", "__array__", "equal", "allclose", "is_nonzero",
])  # fmt: skip
_SIZED_BY_VALUES = frozenset(
    ["nonzero", "unique", "unique_consecutive", "masked_select", "_pack_padded_sequence"]
)


class RetryWithOpaqueModule(Exception):
    """Restart the capture with this module as one call."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(why)
        self.path, self.why = path, why


def reads_values(name: str) -> bool:
    """Whether a call that returns no tensor reads a tensor's values."""
    return name.rpartition(".")[2] in _READS_VALUES


def sized_by_values(name: str, args: tuple[Any, ...]) -> bool:
    short = name.rpartition(".")[2]
    if short == "where":
        return len(args) == 1
    if short == "__getitem__":
        index = args[1] if isinstance(args[1], tuple) else (args[1],)
        return any(isinstance(one, torch.Tensor) and one.dtype in (torch.bool, torch.uint8) for one in index)
    return short in _SIZED_BY_VALUES or short.startswith("_unique")


def note_constructors(module: ModuleType) -> None:
    """Make every module of the source remember its constructor arguments."""
    for kind in list(vars(module).values()):
        if isinstance(kind, type) and issubclass(kind, nn.Module) and kind.__module__ == module.__name__:
            kind.__init__ = _noting(kind.__init__)  # type: ignore[misc]


def _noting(plain: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(plain)
    def init(self: nn.Module, *args: Any, **kwargs: Any) -> None:
        vars(self).setdefault(_MADE, (args, kwargs))  # of the class itself, not of its base class
        plain(self, *args, **kwargs)

    return init


def made_with(part: nn.Module) -> dict[str, Any] | None:
    """The constructor's arguments by name; None if they are unknown or not constants."""
    known = vars(part).get(_MADE)
    if known is None:
        return None
    try:
        bound = inspect.signature(type(part)).bind(*known[0], **known[1])
    except TypeError:
        return None
    kinds = [parameter.kind for parameter in bound.signature.parameters.values()]
    if any(kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD) for kind in kinds):
        return None
    source = type(part).__module__
    try:
        return {name: _constant(value, source) for name, value in bound.arguments.items()}
    except _NoConstant:
        return None


class _NoConstant(Exception):
    pass


def _constant(value: Any, source: str) -> Any:
    """The value, with objects of the source's classes as source text."""
    if isinstance(value, list | tuple):
        items = [_constant(item, source) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, dict):
        return {_constant(key, source): _constant(item, source) for key, item in value.items()}
    if isinstance(value, np.generic):
        return value.item()
    kind = type(value)
    if kind.__module__ == source and "." not in kind.__qualname__:
        if isinstance(value, enum.Enum):
            return Written(f"{kind.__name__}.{value.name}", kind.__name__)
        if dataclasses.is_dataclass(value):
            return _configuration(value, source)
    if isinstance(value, enum.Enum) or not isinstance(value, _CONSTANTS):
        raise _NoConstant
    return value


def _configuration(value: Any, source: str) -> Written:
    """A dataclass instance as source text, with only the fields that differ from their defaults."""
    kind: Any = type(value)
    fields = {one.name: one.default for one in dataclasses.fields(value) if one.init}
    texts = {name: constant(_constant(getattr(value, name), source)) for name in fields}
    given = {
        name: getattr(value, name) for name, default in fields.items() if getattr(value, name) != default
    }
    if kind(**given) != value:
        raise _NoConstant
    return Written(f"{kind.__name__}({', '.join(f'{name}={texts[name]}' for name in given)})", kind.__name__)
