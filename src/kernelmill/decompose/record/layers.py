"""Find the constructor arguments that recreate a torch layer."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn

COMPOSED = (
    nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict, nn.MultiheadAttention, nn.Transformer,
    nn.TransformerEncoder, nn.TransformerDecoder, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer,
)  # fmt: skip
"""torch layers that are composed of others; the inner layers are recorded instead."""
_RECURRENT = {
    "input_size": ..., "hidden_size": ..., "num_layers": 1, "nonlinearity": "tanh", "bias": True, "batch_first": False,
    "dropout": 0.0, "bidirectional": False, "proj_size": 0,
}  # fmt: skip
_NOT_COMPUTED = ("device", "dtype", "inplace", "_weight", "_freeze", "_stacklevel", "size_average", "reduce")


def arguments(layer: nn.Module) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The required constructor arguments, and those that differ from their defaults; None if not known."""
    kind = type(layer)
    if not kind.__module__.startswith("torch.nn.modules") or isinstance(layer, COMPOSED) or _has_hooks(layer):
        return None
    wanted = _RECURRENT if isinstance(layer, nn.RNNBase) else _signature(kind)
    required: dict[str, Any] = {}
    options: dict[str, Any] = {}
    tensors: list[str] = []
    for name, default in wanted.items():
        if isinstance(layer, nn.RNNBase) and not hasattr(layer, name):
            continue
        if not hasattr(layer, name):
            return None
        value = getattr(layer, name)
        if isinstance(value, torch.Tensor) or (value is None and isinstance(default, bool)):
            value = value is not None
            tensors.append(name)
        if isinstance(value, torch.Size):
            value = tuple(value)
        value = _plain(value)
        if default is ...:
            required[name] = value
        elif value != _plain(default):
            options[name] = value
    for name in tensors:
        # affine=False already implies no weight and no bias, also in a torch version without these arguments.
        fewer = {option: value for option, value in options.items() if option != name}
        if _makes_the_same(layer, required, fewer):
            options = fewer
    return (required, options) if _makes_the_same(layer, required, options) else None


def _signature(kind: type[nn.Module]) -> dict[str, Any]:
    found = {}
    for parameter in list(inspect.signature(kind.__init__).parameters.values())[1:]:
        if parameter.name in _NOT_COMPUTED or parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            continue
        found[parameter.name] = ... if parameter.default is parameter.empty else parameter.default
    return found


def _plain(value: Any) -> Any:
    """Write (3, 3) as 3, as is usual."""
    if isinstance(value, tuple) and len(set(value)) == 1 and isinstance(value[0], int):
        return value[0]
    return value


def _has_hooks(layer: nn.Module) -> bool:
    return bool(
        layer._forward_hooks or layer._forward_pre_hooks or hasattr(layer, "parametrizations")
    ) or "forward" in vars(layer)


def _makes_the_same(layer: nn.Module, required: dict[str, Any], options: dict[str, Any]) -> bool:
    """Whether the arguments recreate the layer; they do not if it was changed after construction."""
    values = [*required.values(), *options.values()]
    if not all(isinstance(value, int | float | str | bool | tuple | list | type(None)) for value in values):
        return False
    try:
        with torch.device("meta"):
            made = type(layer)(**required, **options)
    except (TypeError, ValueError, RuntimeError):
        return False
    return _shapes(made) == _shapes(layer)


def _shapes(layer: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(one.shape) for name, one in (*layer.named_parameters(), *layer.named_buffers())}
