"""Capture of a problem's module as a graph of ATen operations with symbolic sizes.

The graph's inputs are the arguments, the weights and buffers, and the integers that the module stores
(`self.heads`). Whatever a caller can change without changing the code is a symbol. A size is a constant where
the code fixes it or export accepts no symbol for it.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
import torch.utils._pytree as pytree
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import Dim, ExportedProgram
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.dropout import _DropoutNd

from kernelmill.evaluate.task.fit_size import pick
from kernelmill.evaluate.task.reference import BadReference, Reference, load_reference
from kernelmill.generate.inductor import bags, convolution, fake_gpu, ordering, pooling
from kernelmill.generate.inductor.kernels import Unwritable

_sqrt = math.sqrt
_MOST_WITHOUT_WINDOW = 3
"""A weight with more dimensions than this is treated as a convolution's, whichever layer owns it."""
_SIZES = frozenset({"embed_dim", "groups", "head_dim", "hidden_size", "in_features", "input_size", "kdim", "num_features",
                    "num_heads", "out_features", "vdim"})  # fmt: skip
"""The attributes in which torch's layers store sizes."""


@dataclass
class Captured:
    program: ExportedProgram
    sources: list[str]
    """The expression for each input of the graph, in order: `self.linear.weight`, `args[0]`."""
    contiguous: list[bool]
    """Whether the code may assume that the input is contiguous, for each input."""
    mode: str | None
    """The mode that the module was captured in, if it differs from the mode it is built in."""


class _Called(torch.nn.Module):  # type: ignore[misc]
    """A module as a function of its weights, its integers and its arguments."""

    def __init__(self, model: torch.nn.Module, kept: list[tuple[torch.nn.Module, str]]) -> None:
        super().__init__()
        self.__dict__["model"], self.kept = model, kept

    def forward(self, state: dict[str, torch.Tensor], numbers: list[Any], args: list[Any]) -> Any:
        for (owner, name), number in zip(self.kept, numbers, strict=True):
            owner.__dict__[name] = number
        return torch.func.functional_call(self.__dict__["model"], state, tuple(args))


def capture(code: str, entry_point: str | None = None) -> tuple[Captured, Reference]:
    """Capture a problem. Raises `BadReference`, `Unwritable`, or what torch.export raises."""
    with fake_gpu.no_gpu():
        small, random = _small(code, entry_point)
        try:  # at the problem's own sizes, with fake tensors
            reference = load_reference(code, entry_point)
            with (
                FakeTensorMode(allow_non_fake_inputs=True),
                mock.patch.object(torch.nn.Module, "_apply", _applied),
            ):
                model, call = reference.new(1), reference.inputs(2)
        except BadReference:  # the code reads values; small sizes serve as well, since sizes are symbols
            if small is None:
                raise
            reference = small
            model, call = reference.new(1), reference.inputs(2)
        if random is None:
            random = any(isinstance(part, _DropoutNd) and part.p > 0 for part in model.modules())
        mode = "eval" if random and model.training else None
        if mode is not None:
            model.eval()
    if call.kwargs:
        raise Unwritable("inputs by keyword")
    args = pytree.tree_map(lambda x: x.contiguous() if isinstance(x, torch.Tensor) else x, list(call.args))
    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    state = {name: tensor.detach() for name, tensor in state.items()}
    choices = [_integers(model, names) for names in (_SIZES, _SIZES & {"groups"}, frozenset())] + [[]]
    errors: list[Exception] = []
    floats = [] if small is None else _floats(model, small.new(1))
    choices = [choice + more for choice in choices for more in (floats, [])]
    for kept in [choice for place, choice in enumerate(choices) if choice not in choices[:place]]:
        before = [(owner, name, owner.__dict__[name]) for owner, name, _ in kept]
        try:
            program = _exported(model, state, [(owner, name) for owner, name, _ in kept], args)
        except Exception as error:  # noqa: BLE001  export fails in many ways; the last one is raised
            errors.append(error)
            continue
        finally:
            for owner, name, number in before:
                owner.__dict__[name] = number
        given = [*(_path(model, name) for name in state), *(path for _, _, path in kept)]
        leaves = pytree.tree_flatten_with_path(args)[0]
        given += [f"args{pytree.keystr(path)}" for path, _ in leaves]
        values = [*state.values(), *(0 for _ in kept), *(value for _, value in leaves)]
        contiguous = [isinstance(value, torch.Tensor) and value.is_contiguous() for value in values]
        return Captured(program, given, contiguous, mode), reference
    raise errors[-1]


def _small(code: str, entry_point: str | None) -> tuple[Reference | None, bool | None]:
    """Return the problem at a size that runs here and whether it is random; (None, None) if no size runs."""
    try:
        small = pick(code, entry_point).reference
    except BadReference:  # usually too large; the capture reports any other error
        return None, None
    return small, small.examine(1).random


def _applied(self: torch.nn.Module, change: Any, recurse: bool = True) -> torch.nn.Module:
    """Do what `Module._apply` does, for fake tensors: torch's own swaps tensors, which fails for these."""
    for child in self.children() if recurse else ():
        child._apply(change)
    for name, parameter in self._parameters.items():
        if parameter is not None:
            self._parameters[name] = torch.nn.Parameter(change(parameter), parameter.requires_grad)
    for name, buffer in self._buffers.items():
        if buffer is not None:
            self._buffers[name] = change(buffer)
    return self


def _integers(model: torch.nn.Module, names: frozenset[str]) -> list[tuple[torch.nn.Module, str, str]]:
    """Find the integers that the problem's own classes store, and those of torch's layers named in `names`.

    Each is (owner, attribute, expression)."""
    return [
        (owner, name, _path(model, f"{path}.{name}" if path else name))
        for path, owner in model.named_modules()
        for name, value in vars(owner).items()
        if type(value) is int and value > 1
        if name in names or not type(owner).__module__.startswith("torch.")
    ]


def _floats(model: torch.nn.Module, small: torch.nn.Module) -> list[tuple[torch.nn.Module, str, str]]:
    """Find the floats that a constructor derives from sizes (`head_dim ** -0.5`).

    They differ at other sizes.
    """
    others = dict(small.named_modules())
    return [
        (owner, name, f"float:{_path(model, f'{path}.{name}' if path else name)}")
        for path, owner in model.named_modules()
        for name, value in vars(owner).items()
        if type(value) is float and not type(owner).__module__.startswith("torch.")
        if path in others and vars(others[path]).get(name) != value
    ]


def _path(model: torch.nn.Module, name: str) -> str:
    """Convert a dotted name (`blocks.0.weight`) to a Python expression."""
    text, owner = "self", model
    for part in name.split("."):
        if part.isidentifier():
            text += f".{part}"
        elif isinstance(owner, torch.nn.ModuleDict | torch.nn.ParameterDict):
            text += f"[{part!r}]"
        elif isinstance(owner, torch.nn.ModuleList | torch.nn.Sequential | torch.nn.ParameterList):
            text += f"[{part}]"
        else:
            text = f"getattr({text}, {part!r})"
        owner = getattr(owner, part)
    return text


def _exported(
    model: torch.nn.Module, state: dict[str, Any], integers: list[tuple[Any, str]], args: list[Any]
) -> ExportedProgram:
    numbers = [owner.__dict__[name] for owner, name in integers]
    numbers = [torch.tensor(number) if type(number) is float else number for number in numbers]
    layers = [(path, layer) for path, layer in model.named_modules() if isinstance(layer, _ConvNd)]
    windows = {f"{path}.weight" if path else "weight" for path, _ in layers}
    sizes = (
        {
            name: _dims(tensor, name in windows or tensor.dim() > _MOST_WITHOUT_WINDOW)
            for name, tensor in state.items()
        },
        [_dims(number) for number in numbers],
        pytree.tree_map(_dims, args),
    )
    with torch.no_grad(), fake_gpu.no_gpu(), _sizes_from_tensors(), convolution.layers_in_groups():
        program = torch.export.export(
            _Called(model, integers), (state, numbers, args), dynamic_shapes=sizes, strict=False
        )
        return program.run_decompositions(
            convolution.decompositions() | pooling.decompositions() | ordering.decompositions() | _cells()
        )


def _cells() -> dict[Any, Any]:
    """Decompose RNN cells into products and sums: on a GPU they are library kernels."""
    linear = torch.nn.functional.linear

    def gru(x: Any, h: Any, wi: Any, wh: Any, bi: Any = None, bh: Any = None) -> Any:
        (ri, zi, ni), (rh, zh, nh) = linear(x, wi, bi).chunk(3, 1), linear(h, wh, bh).chunk(3, 1)
        new = torch.tanh(ni + torch.sigmoid(ri + rh) * nh)
        return new + torch.sigmoid(zi + zh) * (h - new)

    def lstm(x: Any, state: Any, wi: Any, wh: Any, bi: Any = None, bh: Any = None) -> Any:
        h, c = state
        i, f, g, o = (linear(x, wi, bi) + linear(h, wh, bh)).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c

    return {torch.ops.aten.gru_cell.default: gru, torch.ops.aten.lstm_cell.default: lstm}


class _FloatKind(type):
    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, float)


class _Float(metaclass=_FloatKind):
    """A `float` for torch's functions that keeps a symbol symbolic."""

    def __new__(cls, value: Any = 0.0) -> Any:
        return torch.sym_float(value) if isinstance(value, torch.SymInt | torch.SymFloat) else float(value)


@contextlib.contextmanager
def _sizes_from_tensors() -> Iterator[None]:
    """Patch torch's layers to read sizes from their input, and `math.sqrt` to keep symbols."""

    def layer_norm(self: Any, x: Any) -> Any:
        return torch.nn.functional.layer_norm(
            x, x.shape[-len(self.normalized_shape) :], self.weight, self.bias, self.eps
        )

    def rms_norm(self: Any, x: Any) -> Any:
        return torch.nn.functional.rms_norm(x, x.shape[-len(self.normalized_shape) :], self.weight, self.eps)

    def root(x: Any) -> Any:
        return torch._sym_sqrt(x) if isinstance(x, torch.SymInt | torch.SymFloat) else _sqrt(x)

    def max_pool1d(
        x: Any, window: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, *rest: Any, **more: Any
    ) -> Any:
        if x.dim() != 3 or any(rest[1:]) or more.get("return_indices"):
            return one_axis(x, window, stride, padding, dilation, *rest, **more)
        numbers = [
            one[0] if isinstance(one, tuple | list) else one for one in (window, stride, padding, dilation)
        ]
        window, stride, padding, dilation = numbers
        steps = window if stride is None else stride
        ceil_mode = bool(rest and rest[0]) or more.get("ceil_mode", False)
        return torch.max_pool2d(
            x.unsqueeze(2), (1, window), (1, steps), (0, padding), (1, dilation), ceil_mode
        ).squeeze(2)

    one_axis = torch.nn.functional.max_pool1d
    with (
        mock.patch.object(torch.nn.LayerNorm, "forward", layer_norm),
        mock.patch.object(torch.nn.RMSNorm, "forward", rms_norm),
        mock.patch.object(torch.nn.functional, "max_pool1d", max_pool1d),
        mock.patch.object(torch.nn.functional, "embedding_bag", bags.embedding_bag),
        mock.patch.object(torch.nn.functional, "float", _Float, create=True),
        mock.patch.object(math, "sqrt", root),
    ):
        yield


def _dims(value: Any, window: bool = False) -> Any:
    """Choose which sizes are symbols.

    Window sizes (a convolution weight's last ones) are constants in the code.
    """
    if not isinstance(value, torch.Tensor):
        return Dim.AUTO if type(value) is int else None
    count = 2 if window else value.dim()
    return dict.fromkeys(range(count), Dim.AUTO)
