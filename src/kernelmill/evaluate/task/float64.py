"""Run code written for float32 in float64: `with Float64(): model(x)`.

Inside, every narrower floating type becomes float64: for new tensors, casts, and tensors kept from outside.
Integers and booleans do not change. A cast that a reference makes on purpose to lose precision loses none
here. So the error of its eager run is large, and so is the error that a candidate is allowed.

A bit cast of a floating type (`.view(torch.int32)`) raises: the bits differ in float64.

Not covered: types from outside torch (`numpy.float32`) keep their precision.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_NARROW = {torch.float16, torch.bfloat16, torch.float32} | {
    getattr(torch, name) for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
}
_NARROW_COMPLEX = {torch.complex32, torch.complex64}
_CASTS = {"float", "half", "bfloat16"}
_COMPLEX_CASTS = {"cfloat", "chalf"}
_NAMES = {"torch.FloatTensor", "torch.HalfTensor", "torch.BFloat16Tensor"}
_NAMES |= {name.replace("torch.", "torch.cuda.") for name in _NAMES}
_TYPES = (torch.FloatTensor, torch.HalfTensor, torch.BFloat16Tensor)


def wide_of(dtype: torch.dtype) -> torch.dtype:
    if dtype in _NARROW:
        return torch.float64
    return torch.complex128 if dtype in _NARROW_COMPLEX else dtype


def upcast(value: Any) -> Any:
    """Convert a tensor to float64 (complex128), exactly.

    Return integers, booleans and other values unchanged.
    """
    if isinstance(value, torch.Tensor) and wide_of(value.dtype) is not value.dtype:
        return value.to(wide_of(value.dtype))
    return value


class Float64(TorchFunctionMode):  # type: ignore[misc]
    """Replaces narrow floating types by float64 inside the context."""

    def __enter__(self) -> Float64:
        self._default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        super().__enter__()
        return self

    def __exit__(self, *what: Any) -> None:
        super().__exit__(*what)
        torch.set_default_dtype(self._default)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        args, kwargs = tuple(_wide(a) for a in args), {k: _wide(v) for k, v in (kwargs or {}).items()}
        if func is getattr(torch.Tensor, name, None) and (name in _CASTS or name in _COMPLEX_CASTS):
            return args[0].to(torch.float64 if name in _CASTS else torch.complex128)
        if name == "view" and _is_bit_cast(args):
            raise TypeError("the bits of a floating type are looked at, which are others in float64")
        return func(*args, **kwargs)


def _is_bit_cast(args: tuple[Any, ...]) -> bool:
    if len(args) != 2 or not isinstance(args[1], torch.dtype):
        return False
    kinds = [dtype.is_floating_point or dtype.is_complex for dtype in (args[0].dtype, args[1])]
    return bool(kinds[0] != kinds[1])


def _wide(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return wide_of(value)
    if isinstance(value, torch.Tensor):
        return upcast(value)
    if (isinstance(value, str) and value in _NAMES) or any(value is kind for kind in _TYPES):
        return torch.float64  # `.type("torch.FloatTensor")`
    if type(value) in (list, tuple):
        return type(value)(_wide(item) for item in value)
    return value
