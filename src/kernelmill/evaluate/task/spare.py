"""Copies of a model to run on, so that the model itself never changes: one copy serves for many runs.

A deep copy of a small model takes longer than running it. `Spares.lend` therefore lends the same copy again,
as long as the runs before have left it as it was and no result is a view of its tensors. A model that holds
anything else than modules, tensors and constants, or lists of these, is copied for every run.
"""

from __future__ import annotations

import copy
import operator
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from kernelmill.torch_calls.tensors import tensors_in

_STORES = ("_parameters", "_buffers", "_modules")
_STANDARD = frozenset(vars(nn.Module()))
_CONSTANTS = (
    bool, int, float, complex, str, bytes, type(None), type, range, torch.dtype, torch.device, torch.Size,
    torch.memory_format, types.FunctionType, types.BuiltinFunctionType,
)  # fmt: skip
_KEPT = 2
"""Models whose copies are kept: the eager one and the oracle."""
_version_of = operator.attrgetter("_version")


class Spares:
    def __init__(self) -> None:
        self._kept: list[_Spare] = []

    @contextmanager
    def lend(self, model: Any, results: list[Any]) -> Iterator[Any]:
        """A copy of the model. The caller appends to `results` what the run returned."""
        spare = next((one for one in self._kept if one.of is model), None)
        if spare is not None:
            self._kept.remove(spare)
        if spare is None or not spare.before.holds():
            spare = _Spare(model)
        yield spare.own
        if spare.lasts(results):
            self._kept = [*self._kept, spare][-_KEPT:]


class _Spare:
    def __init__(self, model: Any) -> None:
        self.of, self.own = model, copy.deepcopy(model)
        self.before, self._after = _State(model), _State(self.own)
        self._memory = set(map(_memory, self._after.tensors))

    def lasts(self, results: list[Any]) -> bool:
        """Whether the copy is as it was, and nobody else holds its tensors."""
        return self._after.holds() and (
            not self._memory or self._memory.isdisjoint(map(_memory, tensors_in(results)))
        )


class _State:
    """All that a model holds. It never `holds` if something in the model could change unseen."""

    def __init__(self, model: Any) -> None:
        self._spaces: list[tuple[Any, tuple[Any, ...]]] = []
        """Dictionaries and lists, and what was in them."""
        self.tensors: list[torch.Tensor] = []
        self._known = all(self._add_module(part) for part in model.modules())
        self._versions = list(map(_version_of, self.tensors))

    def _add_module(self, part: Any) -> bool:
        members = vars(part)
        self._spaces.append((members, tuple(members.values())))
        for name in _STORES:
            store = members[name]
            self._spaces.append((store, tuple(store.values())))
        own = [value for name, value in members.items() if name not in _STANDARD]
        hooked = any(value for name, value in members.items() if name.endswith("_hooks"))
        tensors = [one for name in _STORES[:2] for one in members[name].values()]
        return not hooked and all(map(self._add, [*tensors, *own]))

    def _add(self, value: Any) -> bool:
        if isinstance(value, torch.Tensor):
            if nn.parameter.is_lazy(value):
                return False
            self.tensors.append(value)
        elif type(value) in (list, tuple):
            self._spaces.append((value, tuple(value)))
            return all(map(self._add, value))
        elif not isinstance(value, (*_CONSTANTS, nn.Module)):
            return False
        return True

    def holds(self) -> bool:
        """Called for every run, so it has no loop in Python over members."""
        return (
            self._known
            and list(map(_version_of, self.tensors)) == self._versions
            and all(
                len(now) == len(before)
                and all(map(operator.is_, now.values() if isinstance(now, dict) else now, before))
                for now, before in self._spaces
            )
        )


def _memory(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr())
