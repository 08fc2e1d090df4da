"""Fake tensors, some of which have values: those that a model creates from constants alone while it runs.

`torch.arange(n).max().item()` is the same for any input, so Python may read it. torch's own fake tensors know
this only for single numbers made with `torch.tensor`; here every tensor constructor counts, up to `MOST`
elements. Weights and inputs have no values, because they are created before `track_constants`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_impls import _is_tensor_constructor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd.graph import increment_version
from torch.utils._mode_utils import no_dispatch

MOST = 1 << 20
_NO_VALUES = ("aten::empty", "aten::empty_strided", "aten::empty_permuted")


class Fakes(FakeTensorMode):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self._tracking = False
        self._before: list[Any] = []

    def __enter__(self) -> Fakes:
        self._before.append(torch.utils.swap_tensors)
        torch.utils.swap_tensors = _converted
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        torch.utils.swap_tensors = self._before.pop()

    @contextmanager
    def track_constants(self) -> Iterator[None]:
        """Within this context, tensors made from constants have values."""
        self._tracking = True
        try:
            yield
        finally:
            self._tracking = False

    def may_turn_const(self, t: torch.Tensor) -> bool:
        return (
            self._tracking
            and t.numel() <= MOST
            and t.layout is torch.strided
            and t.device.type == "cpu"
            and not isinstance(t, FakeTensor)
        )

    def dispatch(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        # `torch.FloatTensor(2, 3)` leaves function modes on, which would see the calls made here.
        with torch._C.DisableTorchFunction():
            return self._dispatch(func, types, args, kwargs or {})

    def _dispatch(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._tracking and _leaves_values_open(func):
            empty: Any = super().dispatch(func, types, args, kwargs)
            if isinstance(empty, FakeTensor):
                empty.uninitialised = True
            return empty
        if self._tracking and _makes_values(func):
            made: Any = super().dispatch(func, types, args, kwargs)
            if isinstance(made, FakeTensor) and made.device.type == "cpu" and made.numel() <= MOST:
                with no_dispatch():
                    real = func(*args, **kwargs)
                return self.fake_tensor_converter.from_real_tensor(self, real, make_constant=True)
            return made
        written = _written(func, args, kwargs)
        before = [one._version for one in written]
        output = super().dispatch(func, types, args, kwargs)
        for one, version in zip(written, before, strict=True):
            if one._version == version:  # only its constant was written
                increment_version(one)
        return output


def _converted(parameter: torch.Tensor, other: torch.Tensor) -> None:
    """Replacement for `swap_tensors` in `module.half()`.

    torch swaps fake parameters, and fails if one is weakly referenced, as by torch's own caches.
    """
    parameter.data = other.data


def has_value(tensor: object) -> bool:
    return isinstance(tensor, FakeTensor) and tensor.constant is not None


def is_uninitialised(tensor: object) -> bool:
    """Whether the run allocated it without initialising it, as `torch.FloatTensor(2, 3)` does."""
    return getattr(tensor, "uninitialised", False)


def _leaves_values_open(func: Any) -> bool:
    return isinstance(func, torch._ops.OpOverload) and func._schema.name in _NO_VALUES


def _makes_values(func: Any) -> bool:
    return (
        isinstance(func, torch._ops.OpOverload)
        and _is_tensor_constructor(func)
        and torch.Tag.nondeterministic_seeded not in func.tags
        and func._schema.name not in _NO_VALUES
    )


def _written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[FakeTensor]:
    """Arguments with values that this call writes into."""
    if not isinstance(func, torch._ops.OpOverload) or not func._schema.is_mutable:
        return []
    found = []
    for at, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            one = args[at] if at < len(args) else kwargs.get(argument.name)
            found += [one] if has_value(one) else []
    return found
