"""Record every call into torch while a model runs, as its author wrote it. `capture` runs the model.

This is a functionalization: it does what `torch.func.functionalize` does for ATen, at the level of the
author's calls. Tensors are identified by object identity, and values are immutable. A call that writes into a
tensor creates a new value; a write into a view is also recorded for its base (`_write_back`). A tensor that is
read after it was written through another view makes its module opaque (see `record.keep_whole`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import math
import sys
from collections.abc import Callable, Iterator
from functools import partial
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
from kernelmill.decompose.record.fake import has_value, is_uninitialised
from kernelmill.decompose.record.keep_whole import (
    RetryWithOpaqueModule,
    made_with,
    reads_values,
    sized_by_values,
)
from kernelmill.decompose.record.layers import arguments
from kernelmill.decompose.record.tensor_literals import tensor_expression
from kernelmill.decompose.record.types import Int, Leaf, Op, Scope, Tree, Value, tracked, tree_map
from kernelmill.decompose.record.variables import PositionLookup, SourcePosition

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
        self._attributes = {path for path, _ in _attributes(model)}
        self._inside = False
        """Whether an opaque module is running."""
        self.scope = self.root
        self.notes: list[str] = []
        self.inputs: list[Value] = []
        self.weights: dict[str, Value] = {}
        self._weight_tensors: dict[str, torch.Tensor] = {}
        self.paths = {id(part): path for path, part in model.named_modules(remove_duplicate=True)}
        self._known: dict[
            int, tuple[torch.Tensor, Value]
        ] = {}  # holds the tensors, so that ids are not reused
        self._storages: dict[int, list[torch.Tensor]] = {}
        self._stale: set[int] = set()
        self._views: dict[int, tuple[torch.Tensor, Op]] = {}
        self._ops = 0
        self._positions = PositionLookup()
        self._numbers: dict[int, Any] = {}
        self._layers: dict[str, tuple[dict[str, Any], dict[str, Any]] | None] = {}
        for path, tensor in tensors_of(model):
            if id(tensor) not in self._known:
                self._know(tensor, Value("weight", path, tuple(tensor.shape), _dtype(tensor)))
            self.weights[path] = self._known[id(tensor)][1]
            self._weight_tensors[path] = tensor

    def track_inputs(self, name: str) -> Callable[[Any], Any]:
        """A function that turns values of the model's argument `name` into inputs."""
        count = iter(range(1_000_000))

        def one(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                if id(value) not in self._known:
                    place = next(count)
                    made = Value(
                        "input", name if not place else f"{name}_{place}", tuple(value.shape), _dtype(value)
                    )
                    self.inputs.append(made)
                    self._know(value, made)
                return self._known[id(value)][1]
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

    def _know(self, tensor: torch.Tensor, value: Value) -> None:
        self._known[id(tensor)] = tensor, value
        self._stale.discard(id(tensor))
        self._storages.setdefault(_storage(tensor), []).append(tensor)
        if has_value(tensor) and value.dtype in _INTEGER_DTYPES:
            with no_dispatch():
                value.seen = tensor_expression(tensor.constant)

    def tree(self, tree: Any) -> Tree:
        return tree_map(tree, self._leaf)

    def _leaf(self, one: Any) -> Any:
        if isinstance(one, torch.Tensor):
            known = self._known.get(id(one)) or self._alias(one)
            if known is None:
                return self._constant(one)
            if id(one) in self._stale:
                raise self._retry("a tensor is read after it was written to through a view")
            return known[1]
        if isinstance(one, np.ndarray | np.generic):
            return one.tolist()
        if dataclasses.is_dataclass(one) and not isinstance(one, type):
            return self.tree(dict(vars(one)))
        return one

    def _alias(self, tensor: torch.Tensor) -> tuple[torch.Tensor, Value] | None:
        """Find the value of a tensor that aliases a known one without a torch call: `Variable(x)`."""
        for other in self._storages.get(_storage(tensor), []):
            if _geometry(other) == _geometry(tensor) and id(other) not in self._stale:
                self._know(tensor, self._known[id(other)][1])
                return self._known[id(tensor)]
        return None

    def _constant(self, tensor: torch.Tensor) -> Any:
        """Record a tensor that no torch call made: `torch.Tensor([1e10])`, `torch.from_numpy(np.eye(3))`."""
        typed, shape, dtype = {"dtype": tensor.dtype}, tuple(tensor.shape), _dtype(tensor)
        if is_uninitialised(tensor):
            made = self._made("torch.zeros", (shape,), typed, shape, dtype)
            self._know(tensor, made)
            return made
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
            if shape != (rows, rows):
                made = self._made("torch.Tensor.view", (made, shape), {}, shape, dtype)
        elif numbers is not None:
            made = self._made("torch.tensor", (numbers,), typed, shape, dtype)
        else:
            raise self._retry(f"{known.numel():,} numbers are made without torch")
        self._know(tensor, made)
        return made

    def _made(self, name: str, args: Any, kwargs: Any, shape: tuple[int, ...] | None, dtype: str) -> Value:
        op = Op(self._next(), name, args, kwargs, self.scope, None)
        op.output = value = Value("result", "constant", shape, dtype, op)
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
            now = next(
                (known for _, (tensor, known) in self._known.items() if tensor is self._weight_tensors[path]),
                value,
            )
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
            with _bypass_torch_function(), self:
                return func(*args, **kwargs)
        if name in ("torch.Tensor.size", "torch.Tensor.shape.__get__"):
            return self._sizes(func(*args, **kwargs), args, kwargs)
        if name == "torch.Tensor.data.__get__" or name == "torch.Tensor.detach":
            return args[0]
        return self.call(name, func, args, kwargs, None)

    def _sizes(self, found: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        known = self._known.get(id(args[0]))
        if known is None:
            return found
        if isinstance(found, int):
            axis = args[1] if len(args) > 1 else kwargs["dim"]
            return Int(found, ("size", known[1], axis % args[0].dim()))
        return torch.Size([Int(size, ("size", known[1], axis)) for axis, size in enumerate(found)])

    def call(
        self,
        name: str,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        leaf: Leaf | None,
    ) -> Any:
        """Make the call, and record it if it produces or writes a tensor."""
        if any(map(torch._C._functorch.is_functorch_wrapped_tensor, _flat((args, kwargs)))):
            raise self._retry("a function is transformed (vmap, grad)")
        before = {id(one): one._version for one in _flat((args, kwargs))}
        noted = self.tree(args), self.tree(kwargs)
        if leaf is not None and leaf.opaque_reason:
            for one in _flat((args, kwargs)):
                if not isinstance(one, FakeTensor) and _dtype(one) in _INTEGER_DTYPES:
                    self._known[id(one)][1].seen = tensor_expression(one)
        output = func(*args, **kwargs)
        may_differ = "dropout" in name.lower() or (leaf is not None and leaf.opaque_reason)
        if may_differ and any(id(one) in before for one in _flat(output)):
            # It may return its input unchanged only in this run (a dropout: only in eval mode).
            output = tree_map(
                output,
                lambda one: one.view_as(one) if isinstance(one, torch.Tensor) and id(one) in before else one,
            )
        made = list(_flat(output))
        written = [one for one in _flat((args, kwargs)) if one._version != before[id(one)]]
        if args and any(one is args[0] for one in written):
            written = [args[0]]  # views of it count as written, too
        if not made and not written:
            if reads_values(name) and not all(map(has_value, _flat((args, kwargs)))):
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
            for other in self._storages.get(_storage(tensor), []):
                if other is not tensor:
                    self._stale.add(id(other))
        for tensor in [*made, *written]:
            if id(tensor) not in before or any(tensor is one for one in written):
                known = self._known.get(id(tensor))
                if known is None or known[1].op is not op:
                    self._know(tensor, Value("result", op.short, tuple(tensor.shape), _dtype(tensor), op))
        # `x[:, 0] = y` returns nothing: its result is x.
        op.output = self.tree(output if made else (written[0] if len(written) == 1 else written))
        for tensor in written:
            self._write_back(tensor)
        for tensor in made:
            if (
                args
                and isinstance(args[0], torch.Tensor)
                and tensor is not args[0]
                and _storage(tensor) == _storage(args[0])
            ):
                self._views[id(tensor)] = args[0], op
        return output

    def _write_back(self, view: torch.Tensor) -> None:
        """Record that a write into a view also changed its base."""
        if id(view) not in self._views:
            return
        base, made_by = self._views[id(view)]
        now, before = self._known[id(view)][1], self._known[id(base)][1]
        short = made_by.short
        if short == "__getitem__":
            name: str = "torch.Tensor.__setitem__"
            args: tuple[Any, ...] = (before, made_by.args[1], now)
        elif short in _SHAPING:
            name, args = "torch.Tensor.reshape", (now, tuple(base.shape))
        elif short in ("transpose", "t", "mT", "T") and (short != "transpose" or not made_by.kwargs):
            name, args = (
                f"torch.Tensor.{short}" + (".__get__" if short in ("mT", "T") else ""),
                (now, *made_by.args[1:]),
            )
        else:
            return
        op = Op(self._next(), name, args, {}, self.scope, _line())
        self.scope.items.append(op)
        op.output = Value("result", op.short, tuple(base.shape), _dtype(base), op)
        self._know(base, op.output)
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
        weights = {name: self._known[id(tensor)][1] for name, tensor in tensors_of(part)}
        return Leaf(path, type(part).__name__, made_with(part) or {}, {}, weights, None, self._opaque[path])

    def _layer(self, part: nn.Module) -> Leaf | None:
        path = self.paths.get(id(part))
        if path and path not in self._layers:
            self._layers[path] = arguments(part)
        known = self._layers.get(path) if path else None
        if not path or known is None:
            return None
        weights = {
            name: self._known[id(tensor)][1]
            for name, tensor in (*part.named_parameters(), *part.named_buffers())
            if id(tensor) in self._known
        }
        if any(value.kind != "weight" for value in weights.values()):
            return None  # called with tensors that the model computes (`torch.func.functional_call`)
        dtypes = {value.dtype for value in weights.values() if "float" in value.dtype}
        other = next(iter(dtypes)) if len(dtypes) == 1 and dtypes != {"float32"} else None
        return Leaf(path, type(part).__name__, *known, weights, other)


_INTEGER_DTYPES = ("int64", "int32", "int16", "int8", "uint8")
_OVERWRITING = ("copy_", "zero_", "fill_")
_SHAPING = ("view", "reshape", "flatten", "unflatten", "unsqueeze", "squeeze", "view_as", "reshape_as")


@contextlib.contextmanager
def _bypass_torch_function() -> Iterator[None]:
    """Within this context, a composed function runs its own code instead of dispatching to the mode."""
    names: Any = F
    plain = names.has_torch_function
    names.has_torch_function = lambda _: False
    try:
        yield
    finally:
        names.has_torch_function = plain


def bound_arguments(forward: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `forward` by name; those of `*args` as args_0, args_1 …"""
    bound = inspect.signature(forward).bind(*args, **kwargs)
    found: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = inspect.signature(forward).parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            found |= {f"{name}_{at}": one for at, one in enumerate(value)}
        elif kind is inspect.Parameter.VAR_KEYWORD:
            found |= value
        else:
            found[name] = value
    return found


def _flat(tree: Any) -> Iterator[torch.Tensor]:
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, list | tuple | dict):
        for item in tree.values() if isinstance(tree, dict) else tree:
            yield from _flat(item)


def tensors_of(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters, buffers and plain tensor attributes, by path."""
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)
    yield from _attributes(model)


def _attributes(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for path, part in model.named_modules():
        for name, value in vars(part).items():
            if name.startswith("_"):
                continue
            found = {name: value} if isinstance(value, torch.Tensor) else {}
            if isinstance(value, list | tuple):
                found = {f"{name}.{at}": one for at, one in enumerate(value) if isinstance(one, torch.Tensor)}
            elif isinstance(value, dict):
                found = {f"{name}.{key}": one for key, one in value.items() if isinstance(one, torch.Tensor)}
            elif (
                not isinstance(value, torch.Tensor | nn.Module)
                and hasattr(value, "__dict__")
                and not callable(value)
            ):
                # an object of the author's class, such as a normaliser with its mean
                found = {
                    f"{name}.{key}": one for key, one in vars(value).items() if isinstance(one, torch.Tensor)
                }
            for inner, tensor in found.items():
                yield f"{path}.{inner}" if path else inner, tensor


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _geometry(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset()


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


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
