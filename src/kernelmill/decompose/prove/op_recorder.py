"""Record every ATen operation of a run, and whether it happens inside a child.

Not counted as operations: asking a tensor for its device or a number, and aliases without an effect of their
own (`detach`). A recurrent layer (`nn.LSTM`) counts as one operation, because torch would split it into
thousands.

This runs untrusted modules: use it only in a sandboxed process.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import zip_longest
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from kernelmill.decompose.prove.operations import (
    DEVICE_ARGUMENTS,
    OpSequence,
    RunOps,
    is_view,
    op_signature,
    tensors_in,
)
from kernelmill.torch_calls.recorder import OpRecorder, WholeCalls, flops_of
from kernelmill.torch_calls.tensors import dtype_of

_NO_OPERATION = {
    "aten.detach", "aten.lift_fresh", "aten.lift", "aten.alias", "aten._local_scalar_dense", "aten.equal",
}  # fmt: skip
_UNINITIALISED = {"aten.empty", "aten.empty_like", "aten.new_empty"}
"""They compute nothing and their contents are undefined, so zeros are an equally valid replacement."""
_SHAPE_ONLY = {
    "aten.new_zeros", "aten.new_ones", "aten.new_full", "aten.new_empty", "aten.new_empty_strided",
    "aten.zeros_like", "aten.ones_like", "aten.full_like", "aten.empty_like", "aten.rand_like",
    "aten.randn_like",
}  # fmt: skip
"""They use a tensor's shape and dtype, not its numbers."""
_SOME = 8
_COUNTER = "num_batches_tracked"
TRAINING = (_DropoutNd, _NormBase)
"""torch modules that behave differently in train mode, and can be recognised in eval mode."""


class TooMany(BaseException):
    """The operation limit was exceeded. Not an `Exception`, because a model may catch those and continue."""


class ClaimOpRecorder(OpRecorder):
    """Records operations, at most `most` of them.

    `children` names the modules inside which a parent's operations must happen; `tensors` names the tensors
    whose use is recorded.
    """

    def __init__(
        self,
        children: Mapping[nn.Module, str],
        tensors: Mapping[str, torch.Tensor] | None = None,
        most: int | None = None,
    ) -> None:
        super().__init__()
        self._left = math.inf if most is None else most
        self.operations: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        """Operations with their arguments: shapes for tensors, values for everything else."""
        self.written_down: Counter[str] = Counter()
        """The data passed to `torch.tensor`."""
        self.outside: Counter[str] = Counter()
        self.outside_views: Counter[str] = Counter()
        self.of_training_modules: Counter[str] = Counter()
        self.called: list[tuple[str, Counter[str]]] = []
        """Calls of children in order, each with its operations."""
        self.given_to: dict[str, list[list[Any]]] = {}
        """For each child, the distinct inputs and outputs: shapes and dtypes of tensors."""
        self.varied: dict[str, list[bool]] = {}
        """For each child, whether each tensor it was given held more than one value in every call."""
        self.writes = False
        """Whether an operation wrote into a tensor."""
        self.used: set[str] = set()
        self.flops = 0
        self.written = 0
        self.largest = 0
        self._children = children
        self.tensors = tensors or {}  # kept alive, so that no other tensor reuses their ids
        self._names = {id(tensor): name for name, tensor in self.tensors.items()}
        # Norm layers count batches in training, and so do their subclasses, which a part need not use.
        self._counters = {id(one) for name, one in self.tensors.items() if name.endswith(_COUNTER)}
        self._inside: list[Counter[str]] = []
        self._training = 0
        self._sequence = OpSequence()

    def done(self) -> RunOps:
        return RunOps(self._sequence.signatures, self._sequence.steps)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.replace("::", ".")
        output = func(*args, **kwargs)
        if name in _UNINITIALISED:
            return output
        if name == "aten.add_" and id(args[0]) in self._counters:
            return output
        if self._muted or func.namespace == "prim" or name in _NO_OPERATION:
            if not self._muted and args and isinstance(args[0], torch.Tensor):
                self._sequence.same(args[0], output)
            return output
        flops = flops_of(func, args, kwargs, output) or 0
        view = bool(getattr(func, "is_view", False))
        self._sequence.add(op_signature(func, args, kwargs), (args, *kwargs.values()), output, is_view(func))
        self.writes = self.writes or func._schema.is_mutable
        self.note(name, args, kwargs, output, flops, view)
        return output

    def note(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any, flops: int, view: bool
    ) -> None:
        # `add_` computes what `add` does; changed inputs are checked separately.
        kind = name.rstrip("_")
        self._left -= 1
        if self._left < 0:
            raise TooMany
        self.operations[kind] += 1
        named = sorted((key, value) for key, value in kwargs.items() if key not in DEVICE_ARGUMENTS)
        self.calls[f"{kind}{_signature(args)}{_signature(named)}"] += 1
        if self._inside:
            self._inside[-1][kind] += 1
        elif view:
            self.outside_views[kind] += 1
        else:
            self.outside[kind] += 1
        if self._training:
            self.of_training_modules[kind] += 1
        if name not in _SHAPE_ONLY:
            for tensor in tensors_in((args, kwargs)):
                if (known := self._names.get(id(tensor))) is not None:
                    self.used.add(known)
        self.flops += flops
        if not view:
            sizes = [math.prod(tensor.shape) for tensor in tensors_in(output)]
            self.written += sum(sizes)
            self.largest = max([self.largest, *sizes])

    def whole_call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        width = math.prod(args[0].shape[:-1])
        weights = sum(math.prod(t.shape) for t in tensors_in(args[1:]) if t.dim() == 2)
        self.note(f"aten.{name}", args, kwargs, output, 2 * width * weights, False)
        self._sequence.add(f"{name}{_settings(args)}", args, output, False)

    @contextmanager
    def seeing(self) -> Iterator[None]:
        """Record operations, their modules, and whether children receive more than one distinct number."""

        def called(module: nn.Module, args: Any, kwargs: Any) -> None:
            with self.muted():
                now = [varies(tensor) for tensor in tensors_in((args, kwargs))]
            before = self.varied.get(self._children[module], [])
            self.varied[self._children[module]] = [
                a and b for a, b in zip_longest(before, now, fillvalue=True)
            ]

        with ExitStack() as stack:
            for child in self._children:
                stack.enter_context(child.register_forward_pre_hook(called, with_kwargs=True))
            stack.enter_context(self)
            stack.enter_context(self.following())
            yield

    @contextmanager
    def following(self) -> Iterator[None]:
        """Track which module is running."""

        def enter(module: nn.Module, args: Any) -> None:
            if module in self._children:
                self._inside.append(Counter())
                self.called.append((self._children[module], self._inside[-1]))
            self._training += isinstance(module, TRAINING)

        def leave(module: nn.Module, args: Any, output: Any) -> None:
            if module in self._children:
                self._inside.pop()
            self._training -= isinstance(module, TRAINING)

        def called(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            both = [shapes_of((args, kwargs)), shapes_of(output)]
            seen = self.given_to.setdefault(self._children[module], [])
            if both not in seen:
                seen.append(both)

        with ExitStack() as stack:
            stack.enter_context(register_module_forward_pre_hook(enter))
            stack.enter_context(register_module_forward_hook(leave, always_call=True))
            for child in self._children:
                stack.enter_context(child.register_forward_hook(called, with_kwargs=True))
            yield


class WholeSequences(WholeCalls):
    """Records a recurrent function as one operation.

    The data passed to `torch.tensor` and `new_tensor` is recorded as numbers, not as an operation.
    """

    _recorder: ClaimOpRecorder

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in (torch.tensor, torch.Tensor.new_tensor):
            data = kwargs["data"] if "data" in kwargs else args[func is torch.Tensor.new_tensor]
            if not tensors_in(data):
                with self._recorder.muted():  # literal numbers, of any dtype
                    output = func(*args, **kwargs)
                self._recorder.written_down[_numbers(data)] += 1
                return output
        return super().__torch_function__(func, types, args, kwargs)


def varies(tensor: torch.Tensor) -> bool:
    """Whether the tensor holds more than one distinct number."""
    if tensor.numel() < 2:
        return False
    first = tensor[(0,) * tensor.dim()]
    some = tensor[
        tuple(slice(0, _SOME) for _ in range(tensor.dim()))
    ]  # comparing all of a large tensor costs as much as an operation, so try a corner first
    return bool((some != first).any()) or bool((tensor != first).any())


def shapes_of(value: Any) -> list[list[Any]]:
    """Shape and dtype of each tensor."""
    return [[list(t.shape), dtype_of(t)] for t in tensors_in(value)]


def _numbers(data: Any) -> str:
    return repr(data.tolist() if isinstance(data, np.ndarray | np.generic) else data)


def _settings(args: tuple[Any, ...]) -> str:
    """The settings of a recurrent function: layers, directions and the like."""
    return repr([value for value in args if isinstance(value, bool | int | float)])


def _signature(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, list | tuple):
        return f"({', '.join(_signature(item) for item in value)})"
    return repr(value)
