"""Detect whether a run changed torch or this project. Use it in the process that runs untrusted code.

It compares functions and classes: those of the modules that models use and of this project, the methods of torch's
modules and tensors, the code of all these functions, and torch's state for all modules (hooks, settings). It is not a
security boundary: arbitrary code can restore what it changed.
"""

from __future__ import annotations

import builtins
import inspect
import sys
import threading
from collections.abc import Collection, Iterator, Mapping
from operator import is_
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as module_state

_MODULES = (
    "torch", "torch.functional", "torch.nn", "torch.nn.functional", "torch.nn.init", "torch.linalg", "torch.fft", "torch.special",
    "torch._C._nn", "torch._tensor", "math", "random", "json",
)  # fmt: skip
TOOLS = (
    "torch.cuda", "torch.testing", "torch.random", "torch.autograd", "torch.overrides", "triton", "triton.language",
    "triton.language.core", "triton.runtime.jit", "triton.runtime.autotuner", "triton.runtime.interpreter", "numpy", "time",
    "os", "struct", "socket", "gc", "operator", "threading",
)  # fmt: skip
"""Modules by which a process measures and compares, beside those that models use."""
_OWN = "kernelmill."
_PARTS = "torch.nn.modules."
_HOOKS = [name for name in vars(module_state) if name.startswith("_global_") and name.endswith("hooks")]


class TorchSnapshot:
    """A snapshot of the current state, with the modules `also`."""

    def __init__(self, also: Collection[str] = ()) -> None:
        self._before = [(owner, dict(vars(owner))) for owner in _owners({*_MODULES, *also})]
        functions = {
            id(value): (f"{value.__module__}.{value.__qualname__}", value)
            for _, names in self._before
            for value in names.values()
            if type(value) is FunctionType
        }
        self._codes = [(name, function, function.__code__) for name, function in functions.values()]
        self._state = _state()

    def changes(self) -> list[str]:
        """The names of everything changed since the snapshot, or added to a class."""
        changed = [
            name
            for owner, had in self._before
            if not _same(had, vars(owner))
            for name in _changed(owner, had)
        ]
        changed += [
            f"{name}.__code__" for name, function, code in self._codes if function.__code__ is not code
        ]
        now = _state()
        return sorted(changed) + [name for name, value in self._state.items() if now[name] != value]


def _owners(names: Collection[str]) -> Iterator[ModuleType | type]:
    """The modules of these names and our own, and the classes defined in them and in torch's layers."""
    kinds = {id(kind): kind for kind in (torch.Tensor, torch._C.TensorBase, nn.Parameter)}
    yield builtins
    for name, module in list(sys.modules.items()):
        if name in names or name.startswith((_OWN, _PARTS)):
            yield module
            for value in list(vars(module).values()):
                if isinstance(value, type) and value.__module__ == name:
                    kinds[id(value)] = value
    yield from kinds.values()


def _same(had: Mapping[str, Any], has: Mapping[str, Any]) -> bool:
    return len(had) == len(has) and all(map(is_, had.values(), has.values())) and had.keys() == has.keys()


def _changed(owner: ModuleType | type, had: Mapping[str, Any]) -> Iterator[str]:
    """Changed functions and classes of a module (`torch.equal`), or changed members of a class.

    The latter are named as `torch.nn.modules.linear:Linear.forward`.
    """
    has = vars(owner)
    if isinstance(owner, type):
        for key in had.keys() | has.keys():
            one, other = had.get(key), has.get(key)
            if one is not other and (_is_looked_at(one) or _is_looked_at(other)):
                yield f"{owner.__module__}:{owner.__qualname__}.{key}"
    else:
        for key, value in had.items():
            if callable(value) and has.get(key) is not value and (owner is not builtins or key != "_"):
                yield f"{owner.__name__}.{key}"


def _is_looked_at(value: Any) -> bool:
    return inspect.isroutine(value) or isinstance(value, property)


def _state() -> dict[str, Any]:
    hooks = {f"torch's {name}": list(vars(module_state)[name]) for name in _HOOKS}
    return hooks | {
        "torch's default type": torch.get_default_dtype(),
        "torch's precision of products": torch.get_float32_matmul_precision(),
        "torch's threads": torch.get_num_threads(),
        "torch's gradients": torch.is_grad_enabled(),
        "torch's deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "torch's use of cuDNN": (torch.backends.cudnn.enabled, torch.backends.cudnn.benchmark),
        "the number of threads": threading.active_count(),
    }
