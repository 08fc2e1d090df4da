"""Inputs and outputs of a model: nested values whose leaves are tensors and Python scalars.

`Call` is a set of arguments, `Outputs` a flattened result. Python numbers and numpy arrays among the outputs
become tensors, so that there is one way to compare them; `structure` describes the containers around them.
Lists, tuples and named tuples count as the same structure, and so do dictionaries and dataclasses with the
same keys: callers index them alike.

A sparse tensor is its parts (`torch_calls.tensors.Sparse`) until a model is called.

Not covered: outputs of other types (distributions, nested tensors). They raise `UnsupportedValue`.
"""

from __future__ import annotations

import copy
import dataclasses
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from kernelmill.torch_calls.tensors import Sparse, assembled, is_sparse, map_tensors, parts_of, tensors_in

if TYPE_CHECKING:
    from kernelmill.evaluate.judge.choices import Choice

_FLOAT32_MAX = 3.4e38


def seed_all(seed: int) -> None:
    """Seed Python's, numpy's and torch's generators.

    Does not call torch.manual_seed: before CUDA is initialised, that formats a stack trace for later.
    """
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        for generator in torch.cuda.default_generators:
            generator.manual_seed(seed)


told_of_seeds: list[Callable[[int | None], None]] = []
"""Who wants to know when generators are seeded apart (`int`), and when they go on where they were (None)."""


@contextmanager
def seeded_apart(by: int) -> Iterator[None]:
    """Draw other numbers inside, which depend on the last seed that was set and not on numbers drawn since."""
    on_gpus = torch.cuda.default_generators if torch.cuda.is_initialized() else ()
    drawn = [(generator, generator.get_state()) for generator in (torch.default_generator, *on_gpus)]
    for generator, _ in drawn:
        generator.manual_seed(generator.initial_seed() ^ by)
    for tell in told_of_seeds:
        tell(by)
    try:
        yield
    finally:
        for generator, state in drawn:
            generator.set_state(state)
        for tell in told_of_seeds:
            tell(None)


class UnsupportedValue(Exception):
    """A value cannot be compared. The message is one line."""


@dataclass
class Call:
    """The arguments of one call of a model."""

    args: list[Any]
    kwargs: dict[str, Any] = field(default_factory=dict)

    def clone(self) -> Call:
        """A copy with its own storage.

        A tensor that is passed twice stays one tensor, and strides are kept.
        """
        return self.map(clone_tensor)

    def on(self, model: Any) -> Any:
        """Call a model with these arguments, without gradients."""
        with torch.no_grad():
            return model(*assembled(self.args), **assembled(self.kwargs))

    def map(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Call:
        """The same call with every tensor changed. A tensor that occurs twice is changed once."""
        seen: dict[int, torch.Tensor] = {}

        def once(tensor: torch.Tensor) -> torch.Tensor:
            if id(tensor) not in seen:
                seen[id(tensor)] = change(tensor)
            return seen[id(tensor)]

        return Call(*map_tensors([self.args, self.kwargs], once, copy.deepcopy))

    def leaves(self) -> list[tuple[str, Any]]:
        """Every leaf by its path, `args[0]` or `kwargs['mask'][1]`, in order."""
        found = [leaf for i, value in enumerate(self.args) for leaf in _leaves(f"args[{i}]", value)]
        return found + [leaf for k, value in self.kwargs.items() for leaf in _leaves(f"kwargs[{k!r}]", value)]

    def tensors(self) -> list[torch.Tensor]:
        return tensors_in([self.args, self.kwargs])

    def replace(self, changed: dict[str, torch.Tensor]) -> Call:
        """A clone with the tensors at these paths replaced."""
        at = {id(leaf): path for path, leaf in self.leaves() if isinstance(leaf, torch.Tensor)}
        return self.map(lambda t: changed[at[id(t)]] if at[id(t)] in changed else clone_tensor(t))

    def to(self, device: torch.device | str) -> Call:
        return self.map(lambda t: t.to(device))


@dataclass
class Outputs:
    leaves: list[torch.Tensor]
    paths: list[str]
    structure: str
    buffers: dict[str, torch.Tensor] = field(default_factory=dict)
    """The buffers that the run changed, with their values after it."""
    choices: dict[int, Choice] = field(default_factory=dict)
    """For a leaf of indices, by its position: what they were chosen from."""


def flatten(value: Any, scalars: torch.dtype = torch.float32) -> Outputs:
    """Flatten a result.

    Python floats get the dtype `scalars`: most come from `.item()` of a tensor of that dtype.
    """
    leaves: list[torch.Tensor] = []
    paths: list[str] = []
    structure = _flatten("output", value, scalars, leaves, paths)
    return Outputs(leaves, paths, structure)


def _flatten(
    path: str, value: Any, scalars: torch.dtype, leaves: list[torch.Tensor], paths: list[str]
) -> str:
    if value is None or isinstance(value, str):
        return repr(value)
    if is_sparse(value):
        value = parts_of(value.coalesce() if value.layout == torch.sparse_coo else value)
    if isinstance(value, Sparse):
        parts = [_flatten(path, part, scalars, leaves, paths) for path, part in _parts(path, value)]
        return f"{value.layout}{value.size}({', '.join(parts)})"
    if isinstance(value, list | tuple):
        parts = [_flatten(f"{path}[{i}]", v, scalars, leaves, paths) for i, v in enumerate(value)]
        return f"({', '.join(parts)})"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        keys = sorted(value, key=str)
        parts = [f"{k!r}: {_flatten(f'{path}[{k!r}]', value[k], scalars, leaves, paths)}" for k in keys]
        return f"{{{', '.join(parts)}}}"
    leaf, kind = _leaf(path, value, scalars)
    leaves.append(leaf)
    paths.append(path)
    return kind


def _leaf(path: str, value: Any, scalars: torch.dtype) -> tuple[torch.Tensor, str]:
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided or value.is_nested or value.is_quantized:
            raise UnsupportedValue(f"{path} is a tensor of layout {value.layout}, which is not compared")
        return value, "tensor"
    if isinstance(value, np.ndarray | np.generic):
        return torch.from_numpy(np.array(value)), "numpy"
    if isinstance(value, bool | int):
        if not -(2**63) <= value < 2**63:
            raise UnsupportedValue(f"{path} is an integer of more than 64 bits, which is not compared")
        return torch.tensor(value), type(value).__name__
    if isinstance(value, float):
        fits = abs(value) < _FLOAT32_MAX or value in (float("inf"), float("-inf")) or value != value
        return torch.tensor(value, dtype=scalars if fits else torch.float64), "float"
    if isinstance(value, complex):
        return torch.tensor(
            value, dtype=torch.complex64 if scalars == torch.float32 else torch.complex128
        ), "complex"
    raise UnsupportedValue(f"{path} is a {type(value).__name__}, which is not compared")


def clone_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """A detached copy, with the same strides unless the tensor is expanded (a stride of 0)."""
    tensor = tensor.detach()
    if 0 in tensor.stride() or tensor.layout is not torch.strided:
        return tensor.clone()
    return torch.empty_strided(
        tensor.size(), tensor.stride(), dtype=tensor.dtype, device=tensor.device
    ).copy_(tensor)


def _parts(path: str, value: Sparse) -> Iterator[tuple[str, torch.Tensor]]:
    for number, part in enumerate(value.places):
        yield f"{path}{PLACES}{number}]", part
    yield f"{path}{_VALUES}", value.values


PLACES, _VALUES = ".places[", ".values"
"""In the path of a tensor that says where the values of a sparse one are, and at the end of the values' own."""


def is_part(path: str) -> bool:
    """Whether this is the path of a part of a sparse tensor."""
    return PLACES in path or path.endswith(_VALUES)


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Sparse):
        yield from _parts(path, value)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(f"{path}[{key!r}]", item)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _leaves(f"{path}[{index}]", item)
    else:
        yield path, value
