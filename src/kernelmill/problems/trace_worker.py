"""A worker for `kernelmill.sandbox` that runs a module once and records what it does.

It executes untrusted code, so call `handle` only in a sandboxed process. The module is built and run on fake
tensors, which have shapes and dtypes but no memory, while a dispatch mode records each ATen operation. If
that fails (`.item()`, numpy, a branch on values), it runs again for real, if it fits into memory. The module
stays in the mode it was built in, and gradients are off.
"""

from __future__ import annotations

import inspect
import math
import os
import resource
import time
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # `@torch.compile` would start compilers, which a child may not do

import msgspec
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils.weak import WeakTensorKeyDictionary

from kernelmill.problems.facts import OpFact, ParameterFact, TensorFact, Trace, ValueFact
from kernelmill.problems.module_file import forget, init_inputs, inputs, load, where
from kernelmill.torch_calls.op_kinds import OpKind, kind_of
from kernelmill.torch_calls.recorder import SEQUENCES, OpRecorder, WholeCalls, flops_of
from kernelmill.torch_calls.tensors import dtype_of, tensors_in

MAX_OPS = 20_000
MAX_FACTS = 10_000
MAX_REPR = 300
_MODULE_NAME = "kernelmill_traced_module"
_FILE = "traced_module.py"


_start = types.SimpleNamespace(mapped=0)  # bytes mapped before forking; a child cannot read this


class TraceFailed(Exception):
    """The module cannot be traced. The message is one line, with the source line."""


def prepare() -> None:
    """Warm up torch before forking children: its lazy imports and first-use tables."""
    warnings.simplefilter("ignore")
    handle({"code": _WARM_UP, "entry_point": "Model"})
    _start.mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    forget(_MODULE_NAME)


def handle(request: dict[str, Any]) -> dict[str, Any]:
    """Trace the class `request["entry_point"]` of `request["code"]`; return a `Trace` as plain values."""
    warnings.simplefilter("ignore")
    code, entry_point = request["code"], request["entry_point"]
    start = time.monotonic()
    sizes: list[int] = []
    try:
        fields = _trace(code, entry_point, "fake", sizes)
    except (Exception, SystemExit) as error:  # noqa: BLE001  the real run shows whose fault it is
        _refuse_if_too_big(sum(sizes), error)
        try:
            fields = _trace(code, entry_point, "real", [])
        except MemoryError:
            raise
        except BaseException as real_error:
            raise TraceFailed(where(real_error, _FILE)) from real_error
    found: dict[str, Any] = msgspec.to_builtins(Trace(**fields, seconds=time.monotonic() - start))
    return found


def _trace(code: str, entry_point: str, mode: str, sizes: list[int]) -> dict[str, Any]:
    """Return the fields of a `Trace`. `sizes` receives the bytes of what was built, even if the run fails."""
    torch.manual_seed(0)
    module = load(code, _MODULE_NAME, _FILE)
    kind: Any = getattr(module, entry_point, None)
    if nn.Module not in getattr(kind, "__mro__", ()):
        raise TypeError(f"{entry_point} is not an nn.Module subclass")
    if not callable(getattr(module, "get_inputs", None)):
        raise AttributeError("the source defines no get_inputs()")
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        if mode == "fake":
            stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        convention, init_args, init_kwargs = init_inputs(module)
        args, input_kwargs = inputs(module)
        _, init_values = _facts(_bound(kind.__init__, init_args, init_kwargs))
        arguments = _bound(kind.forward, args, input_kwargs)
        given, given_values = _facts(arguments)
        model = kind(*init_args, **init_kwargs)
        held = [*_lazy_free(model.parameters()), *_lazy_free(model.buffers()), *tensors_in(args)]
        sizes.extend(t.numel() * t.element_size() for t in held)
        recorder = stack.enter_context(_Recorder(model, arguments))
        stack.enter_context(WholeCalls(recorder, mode == "fake", _WHOLE))
        with recorder.following_modules():
            output = model(*args, **input_kwargs)
    outputs, output_values = _facts([("output", output)])
    returned = [recorder.name_of(tensor) for tensor in tensors_in(output)]
    return {
        "convention": convention,
        "mode": mode,
        "init_values": init_values,
        "inputs": given,
        "input_values": given_values,
        "outputs": outputs,
        "output_values": output_values,
        "returned": returned,
        "parameters": [
            ParameterFact(n, list(p.shape), dtype_of(p), p.requires_grad, _owner(model, n))
            for n, p in model.named_parameters()
        ],
        "buffers": [TensorFact(n, list(b.shape), dtype_of(b)) for n, b in model.named_buffers()],
        "ops": recorder.ops,
        "ops_left_out": recorder.left_out,
        "submodule_types": dict(Counter(_type_name(m) for n, m in model.named_modules() if n)),
    }


def _refuse_if_too_big(held: int, error: BaseException) -> None:
    """Raise if a real run cannot fit: inputs and parameters, and about as much again for results."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return
    free = limit - _start.mapped
    if 2 * held > free:
        need = f"a real run would take about {2 * held / 2**30:.1f} GiB, the limit is {free / 2**30:.1f} GiB"
        raise TraceFailed(f"{where(error, _FILE)}; {need}") from error


# --------------------------------------------------------------------------------------------- values


def _type_name(module: nn.Module) -> str:
    kind = type(module)
    return f"nn.{kind.__name__}" if kind.__module__.startswith("torch.nn.") else kind.__name__


def _owner(model: nn.Module, parameter: str) -> str:
    return _type_name(model.get_submodule(parameter.rpartition(".")[0]))


def _lazy_free(tensors: Iterator[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Skip tensors that get a shape only in the first run."""
    return (t for t in tensors if not nn.parameter.is_lazy(t))


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield every tensor inside a value by its path, and anything that holds no tensor as it is."""
    if isinstance(value, torch.Tensor) or not tensors_in(value):
        yield name, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(f'{name}["{key}"]' if isinstance(key, str) else f"{name}[{key!r}]", item)
    else:
        for index, item in enumerate(value):
            yield from _leaves(f"{name}[{index}]", item)


def _facts(values: Iterable[tuple[str, Any]]) -> tuple[list[TensorFact], list[ValueFact]]:
    tensors: list[TensorFact] = []
    others: list[ValueFact] = []
    for name, value in values:
        for path, leaf in _leaves(name, value):
            if len(tensors) + len(others) > MAX_FACTS:
                raise ValueError(f"more than {MAX_FACTS} values in {name}")
            if isinstance(leaf, torch.Tensor):
                tensors.append(TensorFact(path, list(leaf.shape), dtype_of(leaf)))
            else:
                others.append(ValueFact(path, repr(leaf)[:MAX_REPR]))
    return tensors, others


def _bound(function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return a method's arguments by parameter name, without `self`."""
    try:
        return list(inspect.signature(function).bind(None, *args, **kwargs).arguments.items())[1:]
    except (TypeError, ValueError):  # they do not fit; the call itself raises a better error
        return [(f"args[{i}]", value) for i, value in enumerate(args)] + list(kwargs.items())


# ----------------------------------------------------------------------------------------- operations


class _Recorder(OpRecorder):
    """Records every ATen operation, with the submodule that called it and the origin of its arguments."""

    def __init__(self, model: nn.Module, arguments: list[tuple[str, Any]]) -> None:
        super().__init__()
        self.ops: list[OpFact] = []
        self.left_out = 0
        self._paths = {module: name for name, module in model.named_modules()}
        self._stack: list[str] = []
        # Weak, so that a real run also frees what the module drops.
        self._names: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            self._names[tensor] = name
        for name, value in arguments:
            for path, leaf in _leaves(name, value):
                if isinstance(leaf, torch.Tensor):
                    self._names[leaf] = path

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        # `prim` operations only query a tensor, for its device and the like.
        muted = self._muted or func.namespace == "prim"
        # Before the call: an in-place operation gives its argument a new name.
        given = {} if muted else self.describe(func._schema, args, kwargs)
        output = func(*args, **kwargs)
        if not muted:
            name = func._schema.name.replace("::", ".")
            if "scaled_dot_product" in name:
                flops: int | None = _attention_flops(*args, **kwargs)
            else:
                flops = flops_of(func, args, kwargs, output)
            self.add(name, kind_of(func), output, flops, given)
        return output

    def whole_call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        attention = _WHOLE[name] == "attention"
        flops = _attention_flops(*args, **kwargs) if attention else None
        names = ("query", "key", "value") if attention else ("input", "hidden")
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        arguments = {key: self.text(value) for key, value in given.items() if value is not None}
        self.add(f"aten.{name}", _WHOLE[name], output, flops, arguments)

    def add(self, op: str, kind: OpKind, output: Any, flops: int | None, arguments: dict[str, str]) -> None:
        if len(self.ops) >= MAX_OPS:
            self.left_out += 1
            return
        tensors = tensors_in(output)
        shape = list(tensors[0].shape) if tensors else []
        self.ops.append(OpFact(op, kind, shape, flops, self._stack[-1] if self._stack else "", arguments))
        for index, tensor in enumerate(tensors):
            self._names[tensor] = f"[{len(self.ops)}]" + (f" (part {index + 1})" if index else "")

    def name_of(self, tensor: torch.Tensor) -> str:
        """Return where a tensor comes from.

        That is `x`, `fc.weight`, or `[3]` for the result of the third operation; a tensor from elsewhere is a
        constant.
        """
        return self._names.get(tensor) or f"a constant of shape {tuple(tensor.shape)}"

    def describe(self, schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, str]:
        """Return the arguments of an operation by name, without those that are None."""
        names = [argument.name for argument in schema.arguments]
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        return {name: self.text(value) for name, value in given.items() if value is not None}

    def text(self, value: Any) -> str:
        if isinstance(value, torch.Tensor):
            return self.name_of(value)
        if isinstance(value, list | tuple):
            if tensors_in(value):
                return ", ".join("everything" if item is None else self.text(item) for item in value)
            return f"({', '.join(self.text(item) for item in value)})"
        return str(value).removeprefix("torch.")[:MAX_REPR]

    @contextmanager
    def following_modules(self) -> Iterator[None]:
        def enter(module: nn.Module, args: Any) -> None:
            # A module created during the run has no path of its own.
            self._stack.append(self._paths.get(module, self._stack[-1] if self._stack else ""))
            self._muted += isinstance(module, nn.RNNBase | nn.RNNCellBase)

        def leave(module: nn.Module, args: Any, output: Any) -> None:
            if isinstance(module, nn.RNNBase | nn.RNNCellBase):
                self._muted -= 1
                if not self._muted:
                    flops = _recurrent_flops(module, output)
                    self.add(_recurrent_name(module), "recurrent", output, flops, {"input": self.text(args)})
            self._stack.pop()

        with register_module_forward_pre_hook(enter), register_module_forward_hook(leave, always_call=True):
            yield


_WHOLE: dict[str, OpKind] = {
    "scaled_dot_product_attention": "attention",
    **dict.fromkeys([*SEQUENCES, *(f"{name}_cell" for name in SEQUENCES)], "recurrent"),
}


def _attention_flops(query: Any, key: Any, value: Any, *rest: Any, **options: Any) -> int:
    """Count two products: queries with keys, and weights with values."""
    pairs = math.prod(query.shape[:-1]) * key.shape[-2]
    return int(2 * pairs * (query.shape[-1] + value.shape[-1]))


def _recurrent_name(module: nn.RNNBase | nn.RNNCellBase) -> str:
    if isinstance(module, nn.RNNBase):
        return f"aten.{module.mode.lower()}"
    if isinstance(module, nn.RNNCell):
        return f"aten.rnn_{module.nonlinearity}_cell"
    return "aten.lstm_cell" if isinstance(module, nn.LSTMCell) else "aten.gru_cell"


def _recurrent_flops(module: nn.Module, output: Any) -> int | None:
    """Count each weight matrix once for each step of each sequence."""
    tensors = tensors_in(output)
    if not tensors:
        return None
    weights = sum(p.numel() for p in module.parameters() if p.dim() == 2)
    return int(2 * weights * math.prod(tensors[0].shape[:-1]))


_WARM_UP = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.body = nn.Sequential(nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 8))
        self.norms = nn.ModuleList([nn.LayerNorm(8), nn.GroupNorm(2, 8), nn.Dropout(0.1)])
        self.lstm = nn.LSTM(8, 8)
        self.attention = nn.MultiheadAttention(8, 2)

    def forward(self, x):
        x = self.body(self.conv(x))
        for norm in self.norms:
            x = norm(x)
        y = self.lstm(x.unsqueeze(0))[0]
        y = self.attention(y, y, y)[0] + F.scaled_dot_product_attention(y, y, y)
        y = torch.cat([F.gelu(y) * torch.sigmoid(y), F.softmax(y, -1)], -1).transpose(0, 1).contiguous()
        return y.mean(-1), torch.matmul(y, y.mT).sum().sqrt(), y.argmax(-1), y[:, None], y.cumsum(-1)

def get_inputs():
    return [torch.rand(2, 3, 8, 8)]

def get_init_inputs():
    return []
"""
