"""The tensors of a model, and the arguments of `forward` by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn


def tensors_of(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters, buffers and plain tensor attributes, by path."""
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)
    yield from attributes_of(model)


def attributes_of(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for path, part in model.named_modules():
        for name, value in vars(part).items():
            place = f"{path}.{name}" if path else name
            if name.startswith("_"):
                continue
            if isinstance(value, torch.Tensor):
                yield place, value
            else:
                yield from (
                    (f"{place}.{key}", one) for key, one in _items(value) if isinstance(one, torch.Tensor)
                )


def _items(value: Any) -> Iterable[tuple[Any, Any]]:
    """What a container holds, or an object of the author's class (a normaliser with its mean)."""
    if isinstance(value, list | tuple):
        return enumerate(value)
    if isinstance(value, dict):
        return value.items()
    is_object = hasattr(value, "__dict__") and not callable(value)
    return vars(value).items() if is_object else ()


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
