"""Whether torch and the prover are after a run what they were before it. Use it in the process that runs strangers' code.

It looks at functions and classes: those of the modules that models use and that the prover compares with, the methods of torch's
modules and tensors, and what torch keeps for all modules (hooks, the default type). It is no wall: code that may do anything can put back
what it changed. `prove_child` keeps such code out, this notices what got past it.
"""

from __future__ import annotations

import builtins
import inspect
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as module_state

_MODULES = (
    "torch", "torch.functional", "torch.nn", "torch.nn.functional", "torch.nn.init", "torch.linalg", "torch.fft", "torch.special",
    "torch._C._nn", "torch._tensor", "math", "random", "json",
)  # fmt: skip
_OWN = "kernelmill."
_PARTS = "torch.nn.modules."
_HOOKS = [name for name in vars(module_state) if name.startswith("_global_") and name.endswith("hooks")]


class Intact:
    """What there is now."""

    def __init__(self) -> None:
        self._before = dict(_things())
        self._state = _state()

    def changes(self) -> list[str]:
        """The names of what was changed since, or added to a class."""
        after = dict(_things())
        changed = [name for name, thing in self._before.items() if after.get(name) is not thing]
        classes = {name.rpartition(".")[0] for name in self._before if ":" in name}
        changed += [
            name
            for name in after
            if ":" in name and name not in self._before and name.rpartition(".")[0] in classes
        ]
        now = _state()
        return sorted(changed) + [name for name, value in self._state.items() if now[name] != value]


def _things() -> Iterator[tuple[str, Any]]:
    """Functions and classes of modules (`torch.equal`), and what classes have (`torch.nn.modules.linear:Linear.forward`)."""
    kinds: dict[int, type] = {id(torch.Tensor): torch.Tensor, id(nn.Parameter): nn.Parameter}
    for name, module in list(sys.modules.items()):
        if name not in _MODULES and not name.startswith((_OWN, _PARTS)):
            continue
        for key, value in list(vars(module).items()):
            if isinstance(value, type) and value.__module__ == name:
                kinds[id(value)] = value
            if callable(value):
                yield f"{name}.{key}", value
    yield from ((f"builtins.{key}", value) for key, value in vars(builtins).items() if key != "_")
    for kind in kinds.values():
        for key, value in vars(kind).items():
            if inspect.isroutine(value) or isinstance(value, property):
                yield f"{kind.__module__}:{kind.__qualname__}.{key}", value


def _state() -> dict[str, Any]:
    hooks = {f"torch's {name}": list(vars(module_state)[name]) for name in _HOOKS}
    return hooks | {"torch's default type": torch.get_default_dtype()}
