"""Record every call into torch while a model runs, as its author wrote it. `capture` runs the model.

This is a functionalization: it does what `torch.func.functionalize` does for ATen, at the level of the
author's calls. Tensors are identified by object identity, and values are immutable. A call that writes into a
tensor creates a new value; a write into a view is also recorded for its base (`aliasing`). A tensor that is
read after it was written through another view makes its module opaque (see `record.keep_whole`).
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable
from functools import partial
from itertools import count
from types import FrameType
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._mode_utils import no_dispatch

from kernelmill.decompose.errors import CannotRecord
from kernelmill.decompose.nested import tree_map
from kernelmill.decompose.record.aliasing import INTEGER_DTYPES, AliasTracker, versions
from kernelmill.decompose.record.fake import has_value, is_uninitialised
from kernelmill.decompose.record.fast_paths import bypass_torch_function
from kernelmill.decompose.record.keep_whole import (
    RetryWithOpaqueModule,
    made_with,
    reads_values,
    sized_by_values,
)
from kernelmill.decompose.record.layers import arguments
from kernelmill.decompose.record.model_tensors import attributes_of, bound_arguments, tensors_of
from kernelmill.decompose.record.tensor_literals import tensor_expression
from kernelmill.decompose.record.types import Int, Leaf, Op, Scope, Tree, Value, tracked
from kernelmill.decompose.record.variables import PositionLookup, SourcePosition
from kernelmill.torch_calls.tensors import dtype_of, map_tensors, tensors_in

FILE = "decomposed_model.py"
MAX_OPS = 20_000
SMALL_CONSTANT = 64
_FILLED = {
    "torch.empty": "torch.zeros",
    "torch.empty_like": "torch.zeros_like",
    "torch.Tensor.new_empty": "torch.Tensor.new_zeros",
}
"""A part that writes only some of a new tensor also returns the rest, which must be defined."""


class CallRecorder(TorchFunctionMode):  # type: ignore[misc]
    def __init__(self, model: nn.Module, opaque: dict[str, str]) -> None:
        super().__init__()
        self.root = Scope("", "", None)
        self._opaque, self._modules = opaque, dict(model.named_modules())
        self._attributes = {path for path, _ in attributes_of(model)}
        self._inside = False
        """Whether an opaque module is running."""
        self.scope = self.root
        self.inputs: list[Value] = []
        self.weights: dict[str, Value] = {}
        self._weight_tensors: dict[str, torch.Tensor] = {}
        self.paths = {id(part): path for path, part in model.named_modules(remove_duplicate=True)}
        self._aliases = AliasTracker()
        self._ops = 0
        self._positions = PositionLookup()
        self._numbers: dict[int, Any] = {}
        self._layers: dict[str, tuple[dict[str, Any], dict[str, Any]] | None] = {}
        for path, tensor in tensors_of(model):
            value = self._aliases.value(tensor)
            if value is None:
                value = Value("weight", path, tuple(tensor.shape), dtype_of(tensor))
                self._aliases.know(tensor, value)
            self.weights[path] = value
            self._weight_tensors[path] = tensor

    def track_inputs(self, name: str) -> Callable[[Any], Any]:
        """A function that turns values of the model's argument `name` into inputs."""
        numbers = count()

        def one(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                known = self._aliases.value(value)
                if known is None:
                    at = next(numbers)
                    known = Value(
                        "input", f"{name}_{at}" if at else name, tuple(value.shape), dtype_of(value)
                    )
                    self.inputs.append(known)
                    self._aliases.know(value, known)
                return known
            if type(value) in (int, float):
                made = Value("input", name, None, type(value).__name__, example=value)
                self.inputs.append(made)
                self._numbers[id(value)] = tracked(value, ("given", made))
                return made
            return value

        return one

    def as_given(self, tree: Any) -> Any:
        """The arguments with their numbers tracked."""
        return tree_map(
            tree, lambda one: self._numbers.get(id(one), one) if type(one) in (int, float) else one
        )

    def tree(self, tree: Any) -> Tree:
        return tree_map(tree, self._leaf)

    def _leaf(self, one: Any) -> Any:
        if isinstance(one, torch.Tensor):
            known = self._aliases.value(one) or self._aliases.same_memory(one)
            if known is None:
                return self._constant(one)
            if self._aliases.is_stale(one):
                raise self._retry("a tensor is read after it was written to through a view")
            return known
        if isinstance(one, np.ndarray | np.generic):
            return one.tolist()
        if dataclasses.is_dataclass(one) and not isinstance(one, type):
            return self.tree(dict(vars(one)))
        return one

    def _constant(self, tensor: torch.Tensor) -> Value:
        """Record a tensor that no torch call made: `torch.Tensor([1e10])`, `torch.from_numpy(np.eye(3))`."""
        made = self._as_call(tensor)
        self._aliases.know(tensor, made)
        return made

    def _as_call(self, tensor: torch.Tensor) -> Value:
        """The result of a call that makes the numbers of a tensor."""
        typed, shape, dtype = {"dtype": tensor.dtype}, tuple(tensor.shape), dtype_of(tensor)
        if is_uninitialised(tensor):
            return self._made("torch.zeros", (shape,), typed, shape, dtype)
        known = tensor.constant if has_value(tensor) else None if isinstance(tensor, FakeTensor) else tensor
        if known is None:
            raise CannotRecord(
                f"{self._here()}a tensor of {tuple(tensor.shape)} comes from outside the model"
            )
        with no_dispatch():
            rows = math.isqrt(known.numel())
            numbers = known.tolist() if known.numel() <= SMALL_CONSTANT else None
            identity = rows * rows == known.numel() and (
                numbers is None or known.shape == (rows, rows) != (1, 1)
            )
            identity = identity and bool((known.reshape(rows, rows) == torch.eye(rows)).all())
        if identity:
            made = self._made("torch.eye", (rows,), typed, (rows, rows), dtype)
            same = shape == (rows, rows)
            return made if same else self._made("torch.Tensor.view", (made, shape), {}, shape, dtype)
        if numbers is not None:
            return self._made("torch.tensor", (numbers,), typed, shape, dtype)
        raise self._retry(f"{known.numel():,} numbers are made without torch")

    def _made(
        self,
        name: str,
        args: Any,
        kwargs: Any,
        shape: tuple[int, ...] | None,
        dtype: str,
        line: int | None = None,
    ) -> Value:
        """Record a call that the author did not write, and return its result."""
        op = Op(self._next(), name, args, kwargs, self.scope, line)
        op.output = value = Value("result", op.short, shape, dtype, op)
        self.scope.items.append(op)
        return value

    def results(self, output: Any, root: Scope) -> Tree:
        """The model's output. A weight that is returned unchanged becomes a result: a copy of it."""
        copies: dict[Value, Value] = {}

        def one(value: Any) -> Any:
            if not isinstance(value, Value) or value.kind != "weight":
                return value
            if value not in copies:
                copies[value] = self._made("torch.Tensor.clone", (value,), {}, value.shape, value.dtype)
            return copies[value]

        self.scope = root
        return tree_map(self.tree(output), one)

    def _retry(self, why: str, scope: Scope | None = None) -> RetryWithOpaqueModule:
        """Choose the smallest enclosing module that can be created again from constants."""
        why = f"{self._here()}{why}"
        inside: Scope | None = scope or self.scope
        while inside is not None and inside.path:
            part = self._modules.get(inside.path)
            if part is not None and made_with(part) is not None:
                return RetryWithOpaqueModule(inside.path, why)
            inside = inside.parent
        if made_with(self._modules[""]) is None:
            raise CannotRecord(f"{why}, and the model is not made from constants")
        return RetryWithOpaqueModule("", why)

    def reject_state_writes(self) -> None:
        """Make a module opaque if it writes into a weight or buffer.

        The write persists, which a part with a copy of the tensor could not reproduce. An attribute that each
        run first overwrites (`self.hidden.copy_(hidden)`) carries nothing from run to run and is allowed.
        """
        for path, value in self.weights.items():
            now = self._aliases.value(self._weight_tensors[path]) or value
            if now.op is not None and "" not in self._opaque and not self._overwritten_first(path, value):
                raise self._retry(f"it writes into {path}", now.op.scope)

    def _overwritten_first(self, path: str, value: Value) -> bool:
        first = next(op for op in self.root.ops() if value in op.inputs())
        return path in self._attributes and first.short in _OVERWRITING and first.args[0] is value

    def _here(self) -> str:
        line = _line()
        return f"line {line}: " if line else ""

    def _position(self) -> SourcePosition | None:
        frame = _frame()
        return self._positions.at(frame.f_code, frame.f_lasti) if frame else None

    def _next(self) -> int:
        self._ops += 1
        if self._ops > MAX_OPS:
            raise CannotRecord(f"it makes more than {MAX_OPS:,} calls")
        return self._ops - 1

    # Calls into torch.

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = _name(func)
        if func is F.multi_head_attention_forward:
            with bypass_torch_function(), self:
                return func(*args, **kwargs)
        if name in ("torch.Tensor.size", "torch.Tensor.shape.__get__"):
            return self._sizes(func(*args, **kwargs), args, kwargs)
        if name == "torch.Tensor.data.__get__" or name == "torch.Tensor.detach":
            return args[0]
        return self.call(name, func, args, kwargs, None)

    def _sizes(self, found: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        known = self._aliases.value(args[0])
        if known is None:
            return found
        if isinstance(found, int):
            axis = args[1] if len(args) > 1 else kwargs["dim"]
            return Int(found, ("size", known, axis % args[0].dim()))
        return torch.Size([Int(size, ("size", known, axis)) for axis, size in enumerate(found)])

    def call(
        self,
        name: str,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        leaf: Leaf | None,
    ) -> Any:
        """Make the call, and record it if it produces or writes a tensor."""
        if any(map(torch._C._functorch.is_functorch_wrapped_tensor, tensors_in((args, kwargs)))):
            raise self._retry("a function is transformed (vmap, grad)")
        before = versions((args, kwargs))
        noted = self.tree(args), self.tree(kwargs)
        if leaf is not None and leaf.opaque_reason:
            for one in tensors_in((args, kwargs)):
                if not isinstance(one, FakeTensor) and dtype_of(one) in INTEGER_DTYPES:
                    self._aliases[one].seen = tensor_expression(one)
        output = func(*args, **kwargs)
        may_differ = "dropout" in name.lower() or (leaf is not None and leaf.opaque_reason)
        if may_differ and any(id(one) in before for one in tensors_in(output)):
            # It may return its input unchanged only in this run (a dropout: only in eval mode).
            output = map_tensors(output, lambda one: one.view_as(one) if id(one) in before else one)
        made = tensors_in(output)
        written = [one for one in tensors_in((args, kwargs)) if one._version != before[id(one)]]
        if args and any(one is args[0] for one in written):
            written = [args[0]]  # views of it count as written, too
        if not made and not written:
            if reads_values(name) and not all(map(has_value, tensors_in((args, kwargs)))):
                raise self._retry(f"Python looks at a tensor's values ({name.rpartition('.')[2]})")
            return output
        same = [one for one in made if id(one) in before]
        if made and len(same) == len(made) and not written:
            return output  # nothing happened: `x.contiguous()`, `x.to(x.dtype)`
        if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
            raise self._retry("autocast changes types")
        if leaf is None and sized_by_values(name, args):
            raise self._retry(f"a size depends on a tensor's values ({name.rpartition('.')[2]})")
        name = _FILLED.get(name, name)
        op = Op(self._next(), name, *noted, self.scope, _line(), module=leaf, position=self._position())
        self.scope.items.append(op)
        for tensor in written:
            self._aliases.write(tensor)
        for tensor in [*made, *written]:
            if id(tensor) not in before or any(tensor is one for one in written):
                known = self._aliases.value(tensor)
                if known is None or known.op is not op:
                    self._aliases.know(
                        tensor, Value("result", op.short, tuple(tensor.shape), dtype_of(tensor), op)
                    )
        # `x[:, 0] = y` returns nothing: its result is x.
        op.output = self.tree(output if made else (written[0] if len(written) == 1 else written))
        for tensor in written:
            self._write_back(tensor)
        if args and isinstance(args[0], torch.Tensor):
            for tensor in made:
                self._aliases.note_view(tensor, args[0], op)
        return output

    def _write_back(self, view: torch.Tensor) -> None:
        """Record that a write into a view also changed its base."""
        undone = self._aliases.undone_view(view)
        if undone is None:
            return
        base, name, args = undone
        self._aliases.know(base, self._made(name, args, {}, tuple(base.shape), dtype_of(base), _line()))
        self._write_back(base)

    # Calls of modules.

    def module(
        self, part: nn.Module, plain: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if self._inside:
            return plain(part, *args, **kwargs)
        with torch._C.DisableTorchFunction():  # calls made here are not the model's
            leaf = self._layer(part) or self._opaque_leaf(part)
            if leaf is not None:
                self._inside = bool(leaf.opaque_reason)
                try:
                    return self.call(f"torch.nn.{leaf.kind}", partial(plain, part), args, kwargs, leaf)
                finally:
                    self._inside = False
            own = not type(part).__module__.startswith("torch.nn")
            scope = Scope(self.paths.get(id(part)) or "", type(part).__name__, self.scope, own=own)
            given = bound_arguments(part.forward, list(args), kwargs)
            scope.args = {name: self.tree(value) for name, value in given.items()}
        self.scope.items.append(scope)
        outer, self.scope = self.scope, scope
        try:
            output = plain(part, *args, **kwargs)
        finally:
            self.scope = outer
        with torch._C.DisableTorchFunction():
            scope.output = self.tree(output)
        return output

    def _opaque_leaf(self, part: nn.Module) -> Leaf | None:
        path = self.paths.get(id(part))
        if path not in self._opaque or self._modules[path] is not part:
            return None
        weights = {name: self._aliases[tensor] for name, tensor in tensors_of(part)}
        return Leaf(path, type(part).__name__, made_with(part) or {}, {}, weights, None, self._opaque[path])

    def _layer(self, part: nn.Module) -> Leaf | None:
        path = self.paths.get(id(part))
        if path and path not in self._layers:
            self._layers[path] = arguments(part)
        known = self._layers.get(path) if path else None
        if not path or known is None:
            return None
        weights = {
            name: value
            for name, tensor in (*part.named_parameters(), *part.named_buffers())
            if (value := self._aliases.value(tensor)) is not None
        }
        if any(value.kind != "weight" for value in weights.values()):
            return None  # called with tensors that the model computes (`torch.func.functional_call`)
        dtypes = {value.dtype for value in weights.values() if "float" in value.dtype}
        other = next(iter(dtypes)) if len(dtypes) == 1 and dtypes != {"float32"} else None
        return Leaf(path, type(part).__name__, *known, weights, other)


_OVERWRITING = ("copy_", "zero_", "fill_")


def _name(func: Any) -> str:
    found: str | None = resolve_name(func)
    return found or f"{getattr(func, '__module__', '')}.{getattr(func, '__name__', func)}"


def _line() -> int | None:
    """The current line in the author's file."""
    frame = _frame()
    return frame.f_lineno if frame else None


def _frame() -> FrameType | None:
    """The innermost running frame of the author's file."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != FILE:
        frame = frame.f_back
    return frame
