"""Runs a module once and notes what it does. A worker for `kernelmill.isolate`: it executes a stranger's code,
so call `handle` in a confined process and nowhere else.

The module is built and run on fake tensors, which have shapes and types and no memory, while a dispatch mode
notes each ATen operation. Where that fails (`.item()`, numpy, a branch on values), it runs again for real, if
it fits into memory. The module stays in the mode it was built in, and gradients are off.
"""

from __future__ import annotations

import inspect
import linecache
import math
import os
import re
import resource
import sys
import time
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # a `@torch.compile` would start compilers, which a child may not

import msgspec
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from kernelmill.problems.facts import (
    Convention,
    OpFact,
    OpKind,
    ParameterFact,
    TensorFact,
    Trace,
    ValueFact,
)

MAX_OPS = 20_000
MAX_FACTS = 10_000
MAX_REPR = 300
_MODULE_NAME = "kernelmill_traced_module"
_FILE = "traced_module.py"


_start = types.SimpleNamespace(mapped=0)  # bytes mapped before there was a child, which cannot look


class TraceFailed(Exception):
    """The module cannot be traced; the message is one line, with the line of its source."""


def prepare() -> None:
    """Run what torch does only once, before there are children: its lazy imports and first-use tables."""
    warnings.simplefilter("ignore")
    handle({"code": _WARM_UP, "entry_point": "Model"})
    _start.mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    for name in (_MODULE_NAME, "_paritybench_helpers"):
        sys.modules.pop(name, None)


def handle(request: dict[str, Any]) -> dict[str, Any]:
    """Trace `request["code"]`'s class `request["entry_point"]`; gives a `Trace` as plain values."""
    warnings.simplefilter("ignore")
    code, entry_point = request["code"], request["entry_point"]
    start = time.monotonic()
    sizes: list[int] = []
    try:
        fields = _trace(code, entry_point, "fake", sizes)
    except (Exception, SystemExit) as error:  # noqa: BLE001  the real run shows whether it is the module's own
        _refuse_if_too_big(sum(sizes), error)
        try:
            fields = _trace(code, entry_point, "real", [])
        except MemoryError:
            raise
        except BaseException as real_error:
            raise TraceFailed(_where(real_error)) from real_error
    found: dict[str, Any] = msgspec.to_builtins(Trace(**fields, seconds=time.monotonic() - start))
    return found


def _trace(code: str, entry_point: str, mode: str, sizes: list[int]) -> dict[str, Any]:
    """The fields of a `Trace`. `sizes` receives the bytes of what was built, known even if the run fails."""
    torch.manual_seed(0)
    module = _load(code)
    kind: Any = getattr(module, entry_point, None)
    if nn.Module not in getattr(kind, "__mro__", ()):
        raise TypeError(f"{entry_point} is not an nn.Module subclass")
    if not callable(getattr(module, "get_inputs", None)):
        raise AttributeError("the source defines no get_inputs()")
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        if mode == "fake":
            stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        convention, init_args, init_kwargs = _init_inputs(module)
        inputs, input_kwargs = _inputs(module)
        _, init_values = _named(kind.__init__, (None, *init_args), init_kwargs)
        given, given_values = _named(kind.forward, (None, *inputs), input_kwargs)
        model = kind(*init_args, **init_kwargs)
        held = [*_lazy_free(model.parameters()), *_lazy_free(model.buffers()), *_tensors(inputs)]
        sizes.extend(t.numel() * t.element_size() for t in held)
        recorder = stack.enter_context(_Recorder(model))
        stack.enter_context(_WholeCalls(recorder, mode == "fake"))
        with recorder.following_modules():
            output = model(*inputs, **input_kwargs)
    outputs, output_values = _flatten("output", output)
    return {
        "convention": convention,
        "mode": mode,
        "init_values": init_values,
        "inputs": given,
        "input_values": given_values,
        "outputs": outputs,
        "output_values": output_values,
        "parameters": [
            ParameterFact(n, list(p.shape), _dtype(p), p.requires_grad) for n, p in model.named_parameters()
        ],
        "buffers": [TensorFact(n, list(b.shape), _dtype(b)) for n, b in model.named_buffers()],
        "ops": recorder.ops,
        "ops_left_out": recorder.left_out,
        "submodule_types": dict(Counter(_type_name(m) for n, m in model.named_modules() if n)),
    }


# --------------------------------------------------------------------------------------------- the module's side


class _MockConfig(dict[str, Any]):
    """Stands in for the configuration object that KernelBook's sources import: keys are attributes too."""

    __setattr__ = dict.__setitem__

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def _load(code: str) -> types.ModuleType:
    """Execute the source as a module that `inspect` and tracebacks can read."""
    helpers = types.ModuleType("_paritybench_helpers")
    helpers._mock_config = _MockConfig  # type: ignore[attr-defined]
    helpers.patch_functional = lambda: None  # type: ignore[attr-defined]
    sys.modules["_paritybench_helpers"] = helpers
    module = types.ModuleType(_MODULE_NAME)
    module.__file__ = _FILE
    sys.modules[_MODULE_NAME] = module
    linecache.cache[_FILE] = (len(code), None, code.splitlines(keepends=True), _FILE)
    exec(compile(code, _FILE, "exec"), module.__dict__)
    return module


def _init_inputs(module: types.ModuleType) -> tuple[Convention, list[Any], dict[str, Any]]:
    """The constructor's arguments. `[list, dict]` is KernelBook's shape, a flat list KernelBench's."""
    made = module.get_init_inputs() if hasattr(module, "get_init_inputs") else []
    if not isinstance(made, list | tuple):
        raise TypeError(f"get_init_inputs() returned a {type(made).__name__}, not a list")
    if len(made) == 2 and isinstance(made[0], list) and isinstance(made[1], dict):
        return "kernelbook", made[0], made[1]
    return "kernelbench", list(made), {}


def _inputs(module: types.ModuleType) -> tuple[list[Any], dict[str, Any]]:
    made = module.get_inputs()
    if not isinstance(made, list | tuple):
        raise TypeError(f"get_inputs() returned a {type(made).__name__}, not a list")
    kwargs = module.get_input_kwargs() if hasattr(module, "get_input_kwargs") else {}
    if not isinstance(kwargs, dict):
        raise TypeError(f"get_input_kwargs() returned a {type(kwargs).__name__}, not a dict")
    return list(made), kwargs


def _refuse_if_too_big(held: int, error: BaseException) -> None:
    """Not to run for real what cannot fit: inputs and parameters, and about as much again for results."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return
    free = limit - _start.mapped
    if 2 * held > free:
        need = f"a real run would take about {2 * held / 2**30:.1f} GiB, the limit is {free / 2**30:.1f} GiB"
        raise TraceFailed(f"{_where(error)}; {need}") from error


def _where(error: BaseException) -> str:
    """The type and message of an exception and the last line of the module's source it passed through."""
    text = f"{type(error).__name__}: {' '.join(str(error).split())}"[:600]
    number = error.lineno if isinstance(error, SyntaxError) else None
    step = error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename == _FILE:
            number = step.tb_lineno
        step = step.tb_next
    line = linecache.getline(_FILE, number).strip() if number else ""
    return f"{text} (line {number}: {line[:200]})" if line else text


# ------------------------------------------------------------------------------------------------------- values


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _type_name(module: nn.Module) -> str:
    kind = type(module)
    return f"nn.{kind.__name__}" if kind.__module__.startswith("torch.nn.") else kind.__name__


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _tensors(item)


def _lazy_free(tensors: Iterator[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Without those that get a shape in the first run only."""
    return (t for t in tensors if not nn.parameter.is_lazy(t))


def _flatten(name: str, value: Any) -> tuple[list[TensorFact], list[ValueFact]]:
    tensors: list[TensorFact] = []
    values: list[ValueFact] = []

    def add(name: str, value: Any) -> None:
        if len(tensors) + len(values) > MAX_FACTS:
            raise ValueError(f"more than {MAX_FACTS} values in {name.partition('[')[0]}")
        if isinstance(value, torch.Tensor):
            tensors.append(TensorFact(name, list(value.shape), _dtype(value)))
        elif next(_tensors(value), None) is None:
            values.append(ValueFact(name, repr(value)[:MAX_REPR]))
        elif isinstance(value, dict):
            for key, item in value.items():
                add(f'{name}["{key}"]' if isinstance(key, str) else f"{name}[{key!r}]", item)
        else:
            for index, item in enumerate(value):
                add(f"{name}[{index}]", item)

    add(name, value)
    return tensors, values


def _named(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[list[TensorFact], list[ValueFact]]:
    """Arguments by the names of the parameters they go to; the first, `self`, is left out."""
    try:
        bound = list(inspect.signature(function).bind(*args, **kwargs).arguments.items())[1:]
    except (TypeError, ValueError):  # they do not fit; the call itself will say so better
        bound = [(f"args[{i}]", value) for i, value in enumerate(args[1:])] + list(kwargs.items())
    tensors: list[TensorFact] = []
    values: list[ValueFact] = []
    for name, value in bound:
        more_tensors, more_values = _flatten(name, value)
        tensors += more_tensors
        values += more_values
    return tensors, values


# --------------------------------------------------------------------------------------------------- operations


class _Recorder(TorchDispatchMode):  # type: ignore[misc]
    """Notes every ATen operation, with the submodule that called it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.ops: list[OpFact] = []
        self.left_out = 0
        self._muted = 0
        self._paths = {module: name for name, module in model.named_modules()}
        self._stack: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        output = func(*args, **(kwargs or {}))
        if not self._muted and func.namespace != "prim":  # that asks for a tensor's device and the like
            name = func._schema.name.replace("::", ".")
            flops: int | None = None
            if "scaled_dot_product" in name:
                flops = _attention_flops(*args, **(kwargs or {}))
            elif (count := flop_registry.get(func._overloadpacket)) is not None:
                flops = int(count(*args, **(kwargs or {}), out_val=output))
            self.add(name, _kind(func), output, flops)
        return output

    def add(self, op: str, kind: OpKind, output: Any, flops: int | None) -> None:
        if len(self.ops) >= MAX_OPS:
            self.left_out += 1
            return
        first = next(_tensors(output), None)
        shape = [] if first is None else list(first.shape)
        self.ops.append(OpFact(op, kind, shape, flops, self._stack[-1] if self._stack else ""))

    @contextmanager
    def muted(self) -> Iterator[bool]:
        """What happens inside is part of one operation. Gives whether that is already so."""
        self._muted += 1
        try:
            yield self._muted > 1
        finally:
            self._muted -= 1

    @contextmanager
    def following_modules(self) -> Iterator[None]:
        def enter(module: nn.Module, args: Any) -> None:
            # A module made during the run has no path of its own.
            self._stack.append(self._paths.get(module, self._stack[-1] if self._stack else ""))
            self._muted += isinstance(module, nn.RNNBase | nn.RNNCellBase)

        def leave(module: nn.Module, args: Any, output: Any) -> None:
            if isinstance(module, nn.RNNBase | nn.RNNCellBase):
                self._muted -= 1
                if not self._muted:
                    self.add(_recurrent_name(module), "recurrent", output, _recurrent_flops(module, output))
            self._stack.pop()

        with register_module_forward_pre_hook(enter), register_module_forward_hook(leave, always_call=True):
            yield


class _WholeCalls(TorchFunctionMode):  # type: ignore[misc]
    """Notes attention and recurrent functions as one operation each, before torch takes them apart."""

    def __init__(self, recorder: _Recorder, fake: bool) -> None:
        super().__init__()
        self._recorder = recorder
        self._fake = fake

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name not in _WHOLE:
            return func(*args, **kwargs)
        with self._recorder.muted() as already:
            if self._fake and name in _SEQUENCES and not kwargs:
                output = _fake_sequence(*args)
            else:
                output = func(*args, **kwargs)
        if not already:
            flops = _attention_flops(*args, **kwargs) if _WHOLE[name] == "attention" else None
            self._recorder.add(f"aten.{name}", _WHOLE[name], output, flops)
        return output


def _fake_sequence(data: torch.Tensor, *rest: Any) -> tuple[torch.Tensor, ...]:
    """What a recurrent function returns, by shape: torch would take seconds to fake every step of it."""
    packed = isinstance(rest[0], torch.Tensor) and not rest[0].is_floating_point()
    # (batch sizes,) state, weights, has biases, layers, dropout, training, bidirectional, (batch first)
    state, bidirectional = rest[packed], rest[packed + 6]
    states = [state] if isinstance(state, torch.Tensor) else list(state)
    width = states[0].shape[-1] * (2 if bidirectional else 1)
    return (data.new_empty([*data.shape[:-1], width]), *(torch.empty_like(s) for s in states))


_SEQUENCES = ("lstm", "gru", "rnn_tanh", "rnn_relu")
_WHOLE: dict[str, OpKind] = {
    "scaled_dot_product_attention": "attention",
    **dict.fromkeys([*_SEQUENCES, *(f"{name}_cell" for name in _SEQUENCES)], "recurrent"),
}


def _attention_flops(query: Any, key: Any, value: Any, *rest: Any, **options: Any) -> int:
    """Two products: every query with every key, and the weights with the values."""
    pairs = math.prod(query.shape[:-1]) * key.shape[-2]
    return int(2 * pairs * (query.shape[-1] + value.shape[-1]))


def _recurrent_name(module: nn.RNNBase | nn.RNNCellBase) -> str:
    if isinstance(module, nn.RNNBase):
        return f"aten.{module.mode.lower()}"
    if isinstance(module, nn.RNNCell):
        return f"aten.rnn_{module.nonlinearity}_cell"
    return "aten.lstm_cell" if isinstance(module, nn.LSTMCell) else "aten.gru_cell"


def _recurrent_flops(module: nn.Module, output: Any) -> int | None:
    """Each weight matrix meets each step of each sequence once."""
    first = next(_tensors(output), None)
    if first is None:
        return None
    weights = sum(p.numel() for p in module.parameters() if p.dim() == 2)
    return int(2 * weights * math.prod(first.shape[:-1]))


# The first pattern that a name matches decides. Names are without the namespace and the underscore of in-place.
_KINDS: tuple[tuple[OpKind, str], ...] = (
    ("attention", r".*(scaled_dot_product|(flash|efficient|flex)_attention|multi_head_attention)|_transformer_enc"),
    ("recurrent", r"(.*_)?(lstm|gru|rnn)(_|$)"),
    ("convolution", r".*(convolution|conv_?(transpose|depthwise|tbc|[123]d))"),
    ("normalization", r".*(layer|batch|group|instance|rms|weight)_norm|renorm$"),
    ("softmax", r".*softmax$"),
    ("pooling", r".*pool"),
    ("matmul", r"(.*_)?(add|b|baddb|addb)?mm($|_)|(add)?mv$|v?dot$|(.*_)?matmul|(.*_)?(bi|tri)?linear$|addr$|einsum$"),
    ("random", r".*dropout|rand|bernoulli$|multinomial$|(.*_)?(normal|uniform)$|poisson$|rrelu"),
    ("scan_sort", r"(log)?cum|(.*_)?sort$|topk$|kthvalue$|_?unique|searchsorted$|bucketize$|(nan)?median$|mode$"),
    ("gather", r"_?embedding|_?(unsafe_)?(masked_)?index|gather$|scatter|take|masked_(select|scatter)$|nonzero|"
               r"_?upsample|grid_sampler|one_hot$|put$|_pack_padded"),
    ("copy", r"clone$|(.*_)?copy$|contiguous$|cat$|_chunk_cat$|stack$|(.*_)?(constant|reflection|replication)_pad|"
             r"flip$|roll$|rot90$|repeat|tile$|pixel_|channel_shuffle$|im2col$|col2im$|resize|block_diag$|"
             r"diag_embed$|(as_strided|select|slice|diagonal)_scatter$|pad_sequence$|lift$"),
    ("reduction", r"(nan)?(sum|mean)$|a?(max|min)$|aminmax$|prod$|std|var|(.*_)?norm$|arg(max|min)$|any$|all$|"
                  r"logsumexp$|count_nonzero$|.*_loss|.*_cross_entropy|(.*_)?dist$|_?[cp]dist|trace$|bincount$|histc$"),
    ("creation", r"(new_)?(zeros|ones|empty|full)|arange$|linspace$|logspace$|eye$|scalar_tensor$|lift_fresh|"
                 r"tri[lu]_indices$|fill$|zero$|.*_window$"),
    ("view", r"_unsafe_view$|reshape$|_reshape_alias$|t$|transpose$|(un)?squeeze$|as_strided$|unsafe_(split|chunk)|"
             r"broadcast_tensors$|meshgrid$"),
    ("elementwise", r"floor_divide$|rsub$|glu$|isin|tri[lu]$|log_sigmoid|threshold$|__[a-z]+|.*_?prelu|hardswish$|"
                    r"where$|masked_fill$|polar$|complex$|special_|_add_relu$|quantize_per"),
)  # fmt: skip
_COMPILED = [(kind, re.compile(pattern)) for kind, pattern in _KINDS]
_KIND_CACHE: dict[Any, OpKind] = {}


def _kind(func: Any) -> OpKind:
    if func not in _KIND_CACHE:
        _KIND_CACHE[func] = _classify(func)
    return _KIND_CACHE[func]


def _classify(func: Any) -> OpKind:
    """By what torch says of an operation where it says something certain, else by its name."""
    full = func._schema.name.partition("::")[2]
    name, tags = full.rstrip("_"), set(func.tags)
    if func.is_view:
        return "view"
    if full != name and not full.startswith("__"):  # in place: torch may say it of the other form only
        other = getattr(getattr(torch.ops.aten, name, None), func._overloadname, None)
        tags |= set(getattr(other, "tags", ()))
    found = next((kind for kind, pattern in _COMPILED if pattern.match(name)), None)
    # torch also calls those elementwise which only move numbers, make them, or draw them.
    if torch.Tag.pointwise in tags and found not in ("copy", "creation", "random"):
        return "elementwise"
    if torch.Tag.nondeterministic_seeded in tags and found not in ("attention", "recurrent"):
        return "random"
    return found or "other"


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
