"""Weights and inputs for each trial of a proof, and the comparison of two results."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from kernelmill.decompose.nested import form_of
from kernelmill.decompose.prove.build import BLOCK, block_of, held_tensors, overlaps
from kernelmill.decompose.prove.operations import tensors_in
from kernelmill.torch_calls.tensors import map_tensors

TOLERANCES = {
    torch.float64: 1e-9,
    torch.complex128: 1e-9,
    torch.float32: 1e-5,
    torch.complex64: 1e-5,
    torch.float16: 2e-3,
    torch.bfloat16: 2e-2,
}
_CHUNK = 1 << 22
_SMALL = 1e-4
"""Scale factor for the variances of norm layers when inputs are small, so that a wrong `eps` shows."""


# ---------------------------------------------------------------------------------------------------- weights


class Snapshot:
    """A module as built, to undo what a run changes: its attributes, and the numbers in `kept`."""

    def __init__(self, model: nn.Module, kept: Iterable[torch.Tensor]) -> None:
        self._attributes = [
            (m, dict(vars(m)), dict(m._parameters), dict(m._buffers)) for m in model.modules()
        ]
        self._kept = [(tensor, tensor.detach().clone()) for tensor in kept if not overlaps(tensor)]

    def restore(self) -> None:
        for module, attributes, parameters, buffers in self._attributes:
            vars(module).clear()
            vars(module).update(attributes)
            module._parameters.clear()
            module._parameters.update(parameters)
            module._buffers.clear()
            module._buffers.update(buffers)
        for tensor, before in self._kept:
            tensor.detach().copy_(before)

    def is_changed(self) -> bool:
        """Whether a number in `kept` has changed."""
        return not all(torch.equal(tensor, before) for tensor, before in self._kept)


class State:
    """The tensors of a module, for which it draws new numbers."""

    def __init__(self, model: nn.Module) -> None:
        norms = {id(b) for m in model.modules() if isinstance(m, _NormBase) for b in m._buffers.values()}
        parameters = {id(p) for p in model.parameters()}
        kept: list[torch.Tensor] = []
        self._drawn: list[tuple[torch.Tensor, _Scale, bool, bool]] = []
        seen: set[int] = set()
        for tensor in held_tensors(model).values():
            memory = tensor.untyped_storage().data_ptr()
            if memory in seen or tensor.numel() == 0:
                continue
            seen.add(memory)
            free = id(tensor) in parameters or id(tensor) in norms
            if tensor.is_floating_point() and not overlaps(tensor) and (free or not _is_mask(tensor)):
                self._drawn.append((block_of(tensor), _scale(tensor), free, id(tensor) in norms))
            else:
                kept.append(tensor)
        self._snapshot = Snapshot(model, kept)

    def draw(self, seed: int, small: bool) -> None:
        """Draw new numbers near the initial scale.

        Tensors of one sign (zeros allowed) keep it. Tensors that are not learned stay in their range, which
        may be meaningful. Masks and integers are not changed.
        """
        self._snapshot.restore()
        generator = torch.Generator().manual_seed(seed)
        for tensor, scale, free, norm in self._drawn:
            sign = scale.sign()
            block = torch.randn(min(tensor.numel(), BLOCK), generator=generator) * scale.spread + scale.mean
            if sign:
                block = block.abs().clamp_min(1e-3 * scale.spread) * sign
            if not free and scale.low < scale.high:
                block = block.clamp(scale.low, scale.high)
            _fill(tensor.detach(), block * (_SMALL if small and norm and sign > 0 else 1.0))


def _is_mask(tensor: torch.Tensor) -> bool:
    values = tensor.detach()
    return bool(((values == 0) | (values == 1) | torch.isinf(values)).all())


class _Scale(NamedTuple):
    mean: float
    spread: float
    low: float
    high: float

    def sign(self) -> int:
        return 1 if self.low >= 0 < self.high else -1 if self.low < 0 >= self.high else 0


def _scale(tensor: torch.Tensor) -> _Scale:
    """The scale of the initial numbers."""
    values = tensor.detach().flatten()[:BLOCK].double()
    values = values[torch.isfinite(values)]
    if not values.numel():
        return _Scale(0.0, 0.1, 0.0, 0.0)
    mean, low, high = float(values.mean()), float(values.min()), float(values.max())
    return _Scale(mean, float(values.std()) if low < high else 0.1 * max(abs(mean), 1.0), low, high)


def _fill(tensor: torch.Tensor, block: torch.Tensor) -> None:
    if tensor.numel() == block.numel():
        tensor.copy_(block.view(tensor.shape))
        return
    flat = tensor.view(-1) if tensor.is_contiguous() else tensor.as_strided((tensor.numel(),), (1,))
    for start in range(0, flat.numel(), block.numel()):
        part = flat[start : start + block.numel()]
        part.copy_(block[: part.numel()])


# ----------------------------------------------------------------------------------------------------- inputs


def clone(value: Any) -> Any:
    """Deep-copy the tensors inside tuples, lists and dicts. A tensor that occurs twice stays one tensor."""
    made: dict[int, torch.Tensor] = {}

    def once(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in made:
            made[id(tensor)] = tensor.detach().clone()
        return made[id(tensor)]

    return map_tensors(value, once)


def scale_floats(value: Any, factor: float) -> None:
    for tensor in tensors_in(value):
        if tensor.is_floating_point() and not overlaps(tensor):
            tensor.mul_(factor)


def tells_little(value: Any) -> bool:
    """Whether a float input is constant, or equal to another one, so that many faults would not show."""
    floats = [t for t in tensors_in(value) if t.is_floating_point() and t.numel() > 1]
    if any(bool((t == t.flatten()[0]).all()) for t in floats):
        return True
    pairs = [(a, b) for at, a in enumerate(floats) for b in floats[:at] if a.shape == b.shape]
    return any(bool((a == b).all()) for a, b in pairs)


def draw_floats(value: Any) -> Any:
    """The same structure with new numbers between 0 and 1 in every float tensor."""

    def drawn(tensor: torch.Tensor) -> torch.Tensor:
        return torch.rand(tensor.shape).to(tensor.dtype) if tensor.is_floating_point() else tensor

    return map_tensors(value, drawn)


# ---------------------------------------------------------------------------------------------------- outputs


def leaves(value: Any, path: str = "output") -> Iterator[tuple[str, str, Any]]:
    """The parts of a value: path, kind (for a container its type and keys), and the leaf, if it is one."""
    if isinstance(value, torch.Tensor):
        yield path, "tensor", value
    elif isinstance(value, Mapping) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        items = dict(value) if isinstance(value, Mapping) else dict(vars(value))
        yield path, f"dict of {', '.join(map(repr, items))}", None
        for key, item in items.items():
            yield from leaves(item, f"{path}[{key!r}]")
    elif isinstance(value, list | tuple):
        yield path, f"{'list' if isinstance(value, list) else 'tuple'} of {len(value)}", None
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}[{index}]")
    elif value is None or isinstance(value, bool | int | float | complex | str):
        yield path, type(value).__name__, value
    else:
        raise TypeError(f"{path} is a {type(value).__name__}, which cannot be compared")


def form(value: Any, name: str = "output") -> list[str]:
    """The structure of a value with shapes and dtypes, without numbers."""
    return [
        f"{path}: {form_of(leaf)}" if kind == "tensor" else f"{path}: {kind}"
        for path, kind, leaf in leaves(value, name)
    ]


@dataclasses.dataclass
class Comparison:
    """The result of everything that one trial compares."""

    max_diff: float = 0.0
    bitwise: bool = True
    faults: list[str] = dataclasses.field(default_factory=list)
    finite: int = 0
    tolerance: float = 0.0
    """The largest tolerance of the outputs' dtypes."""
    facts: list[float] = dataclasses.field(default_factory=list)
    """The extremes of each result of the original (of floats, the magnitudes). If equal in all trials, they
    prove nothing."""

    def add(self, name: str, one: Any, other: Any) -> None:
        """Compare two values; `one` is the original's."""
        mine, theirs = list(leaves(one, name)), list(leaves(other, name))
        for (path, kind, a), (_, other_kind, b) in zip(mine, theirs, strict=False):
            if kind != other_kind:
                self.faults.append(f"{path} is a {kind} in the original and a {other_kind} in the refactored")
                return
            if kind == "tensor":
                self._tensors(path, a, b)
            elif a != b and not (isinstance(a, float) and math.isnan(a) and math.isnan(b)):
                self.faults.append(f"{path} is {a!r} in the original and {b!r} in the refactored")

    def _tensors(self, path: str, a: torch.Tensor, b: torch.Tensor) -> None:
        if type(b) is not type(a) and type(b) not in (torch.Tensor, nn.Parameter):
            self.faults.append(f"{path} is a {type(b).__name__} in the refactored")
            return
        if a.shape != b.shape or a.dtype != b.dtype:
            self.faults.append(f"{path} is {form_of(a)} in the original and {form_of(b)} in the refactored")
            return
        if a.numel() == 0:
            return
        if a.dtype not in TOLERANCES:
            if not torch.equal(a, b):
                self.bitwise = False
                self.max_diff = max(self.max_diff, float((a.double() - b.double()).abs().max()))
                self.faults.append(f"{path} differs in {int((a != b).sum())} of {a.numel()} places")
            else:
                self.finite += a.numel()
                self.facts += [float(a.double().min()), float(a.double().max())]
            return
        self._floats(path, a.flatten(), b.flatten(), TOLERANCES[a.dtype])

    def _floats(self, path: str, a: torch.Tensor, b: torch.Tensor, tolerance: float) -> None:
        parts = [(a[i : i + _CHUNK], b[i : i + _CHUNK]) for i in range(0, a.numel(), _CHUNK)]
        magnitudes = [x[torch.isfinite(x)].abs() for x, _ in parts]
        scale = max((float(m.max()) for m in magnitudes if m.numel()), default=0.0)
        self.finite += sum(m.numel() for m in magnitudes)
        self.facts += [scale, min((float(m.min()) for m in magnitudes if m.numel()), default=0.0)]
        worst, wrong, different = 0.0, 0, False
        for x, y in parts:
            same = (x == y) | (torch.isnan(x) & torch.isnan(y))
            if bool(same.all()):
                continue
            different = True
            wide = torch.complex128 if x.is_complex() else torch.float64
            gap = (x[~same].to(wide) - y[~same].to(wide)).abs().nan_to_num(math.inf, math.inf)
            worst = max(worst, float(gap.max()))
            # Relative to the largest number of the result, because a sum of large numbers may be small.
            wrong += int((gap > tolerance * scale).sum())
        self.bitwise &= not different
        self.max_diff = max(self.max_diff, worst)
        if wrong:
            self.faults.append(
                f"{path} differs in {wrong} of {a.numel()} places, by up to {worst:.3g} where the largest is {scale:.3g}"
            )
