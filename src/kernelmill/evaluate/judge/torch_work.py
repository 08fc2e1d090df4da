"""Count how much work torch itself does in a call, by kind of operation: evidence for who computed a result.

The unit is seconds on a notional GPU: the larger of bytes over bandwidth and operations over arithmetic rate.
So a matrix product and a bias can be added up. Allocation and views are free, since every kernel needs them.
Copies are counted as their own kind, for tasks that consist of nothing else. Elements that the host reads are
counted too: no kernel needs that.

In a candidate's process this is evidence, not proof: the judge weighs it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from kernelmill.evaluate.task.chunked import chunks, plain
from kernelmill.torch_calls.op_kinds import is_priced, kind_of
from kernelmill.torch_calls.recorder import OpRecorder, flops_of, is_own
from kernelmill.torch_calls.tensors import tensors_in

_BYTES_PER_SECOND = 3.35e12
_FLOPS = {torch.float32: 6e13, torch.float64: 3e13}
_FLOPS_16_BIT = 8e14
_FREE = {"view", "creation"}
_WHOLE = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool)
_KEPT_RESULTS = 32
HOST_READS = {
    torch.Tensor.cpu: "cpu",
    torch.Tensor.numpy: "numpy",
    torch.Tensor.tolist: "tolist",
    torch.Tensor.__array__: "numpy.array",
    torch.Tensor.item: "item",
}
"""Functions by which the host reads a tensor, and their names."""


_EMPTY = frozenset(
    getattr(torch.ops.aten, name).default
    for name in ("empty", "empty_like", "new_empty", "empty_strided")
    if "default" in getattr(torch.ops.aten, name).overloads()
) | {torch.ops.aten.empty.memory_format}
_QUESTIONS = {
    getattr(owner, name)
    for name in ("isnan", "isinf", "isfinite", "any", "all", "equal", "allclose")
    for owner in (torch, torch.Tensor)
}


@dataclass
class TorchWork:
    """Seconds by kind of operation and by operation, and how many elements the host read."""

    kinds: dict[str, float] = field(default_factory=dict)
    ops: dict[str, float] = field(default_factory=dict)
    host: int = 0
    arithmetic: float = 0.0
    """Seconds that the products would take if memory access were free."""
    copy_of: str = ""
    """The torch operation of whose result the output is a copy, or a multiple; empty if there is none."""

    def to_dict(self) -> dict[str, Any]:
        return {"kinds": self.kinds, "ops": self.ops, "host": self.host, "copy_of": self.copy_of}


class TorchWorkCounter(OpRecorder):
    """Counts the operations that torch dispatches inside the context.

    A predicate (`isnan`, `allclose`) computes no result: it is muted, and not counted.
    """

    def __init__(self, keep: bool = True) -> None:
        """`keep` the first results, so that `look_for` can find them."""
        super().__init__()
        self.work = TorchWork()
        self._kept = _KEPT_RESULTS if keep else 0
        self._results: list[tuple[str, torch.Tensor, torch.Tensor]] = []
        """The operation, its result, and a copy of that."""
        self._host = _HostReads(self)

    def __enter__(self) -> TorchWorkCounter:
        self._host.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *exit_arguments: Any) -> None:
        super().__exit__(*exit_arguments)
        self._host.__exit__(*exit_arguments)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not is_own(func):
            with suppress(NotImplementedError):
                return self.inside(func, args, kwargs)
        out = func(*args, **kwargs)
        if func in _EMPTY and torch.utils.deterministic.fill_uninitialized_memory:
            for tensor in tensors_in(out):
                if tensor.is_complex():  # torch fills the real part only
                    torch.view_as_real(tensor).fill_(float("nan"))
        kind: str = "elementwise" if _truncates(func, args, out) else kind_of(func)
        if not is_priced(func) and tensors_in(out):
            kind = "unpriced"
        if kind not in _FREE and not self._muted:
            moving, arithmetic = _seconds(func, args, kwargs, out)
            seconds = max(moving, arithmetic)
            self.work.arithmetic += arithmetic
            name = func._schema.name
            self.work.kinds[kind] = self.work.kinds.get(kind, 0.0) + seconds
            self.work.ops[name] = self.work.ops.get(name, 0.0) + seconds
            if kind != "copy" and len(self._results) < self._kept:
                with self.muted():  # kernels may write to the result later
                    made = [tensor for tensor in tensors_in(out) if tensor.numel()]
                    self._results += [(name, tensor, tensor.detach().clone()) for tensor in made]
        return out

    def look_for(self, outputs: list[torch.Tensor]) -> None:
        """Set `copy_of` if an output is a copy or a multiple of what torch has computed, and not that itself."""
        for output in outputs:
            if not output.numel() or not (output.is_floating_point() or output.dtype in _WHOLE):
                continue
            for name, result, held in self._results:
                same = result.untyped_storage().data_ptr() == output.untyped_storage().data_ptr()
                if not same and any(_copied(part, output) for part in _parts(held, output)):
                    self.work.copy_of = name
                    return


def _truncates(func: Any, args: Any, out: Any) -> bool:
    """Whether this casts floating-point numbers to integers, which rounds them."""
    if func._schema.name not in ("aten::_to_copy", "aten::copy_"):
        return False
    given = args[-1] if func._schema.name == "aten::copy_" else args[0]
    whole = isinstance(out, torch.Tensor) and not (out.is_floating_point() or out.is_complex())
    return whole and isinstance(given, torch.Tensor) and given.is_floating_point() and out.dtype != torch.bool


def _parts(held: torch.Tensor, output: torch.Tensor) -> list[torch.Tensor]:
    """What of a result may have been copied: all of it, or its beginning or end along one axis."""
    if held.numel() == output.numel():
        return [held]
    longer = [
        axis
        for axis in range(output.dim())
        if held.dim() == output.dim() and held.shape[axis] != output.shape[axis]
    ]
    if len(longer) != 1 or held.shape[longer[0]] < output.shape[longer[0]]:
        return []
    axis, size = longer[0], output.shape[longer[0]]
    return [held.narrow(axis, start, size) for start in (0, held.shape[axis] - size)]


def _copied(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether the second is a multiple of the first, but for one rounding."""
    one, other = one.reshape(-1), other.reshape(-1)
    if one.numel() == 1 or not one.is_floating_point() or not other.is_floating_point():
        return all(torch.equal(plain(a.to(b.dtype)), plain(b)) for _, (a, b) in chunks(one, other))
    squares, products = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    for _, (a, b) in chunks(one, other):
        a, b = (t.cpu().double().nan_to_num(0, 0, 0) for t in (a, b))
        squares, products = squares + a.square().sum(), products + (a * b).sum()
    if not bool(squares > 0):
        return False
    factor, eps = products / squares, torch.finfo(other.dtype).eps
    return all(
        bool(((a.cpu().double() * factor - b.cpu().double()).abs() <= eps * b.cpu().double().abs()).all())
        for _, (a, b) in chunks(one, other)
    )


class _HostReads(TorchFunctionMode):  # type: ignore[misc]
    def __init__(self, recorder: TorchWorkCounter) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in HOST_READS or (func is torch.Tensor.to and _to_host(args[1:], kwargs)):
            self._recorder.work.host += args[0].numel()
        if func not in _QUESTIONS:
            return func(*args, **kwargs)
        with self._recorder.muted():
            return func(*args, **kwargs)


def _to_host(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    targets = [*args, kwargs.get("device")]
    return any(
        target == "cpu" or (isinstance(target, torch.device) and target.type == "cpu") for target in targets
    )


def _seconds(func: Any, args: Any, kwargs: Any, out: Any) -> tuple[float, float]:
    """Seconds for moving the data, and seconds for the arithmetic."""
    tensors = tensors_in((args, kwargs, out))
    # An expanded tensor is larger than its storage, but only the storage is moved.
    moved = sum(min(t.numel() * t.element_size(), t.untyped_storage().nbytes()) for t in tensors)
    flops = flops_of(func, args, kwargs, out)
    if flops is None:
        return float(moved / _BYTES_PER_SECOND), 0.0
    rate = _FLOPS.get(tensors[0].dtype, _FLOPS_16_BIT) if tensors else _FLOPS[torch.float32]
    return float(moved / _BYTES_PER_SECOND), float(flops / rate)
