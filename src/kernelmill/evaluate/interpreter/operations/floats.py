"""Conversions between float formats: bf16 and fp8 are kept as bits, fp16 as NumPy's own type.

NumPy converts halves slowly and knows neither bf16 nor fp8. Larger arrays of halves go through torch, and
fp8 does always. Downcasts round to nearest even; those to fp8 saturate, as PTX's `cvt.satfinite` does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from kernelmill.evaluate.interpreter.handles import Array

_LARGE = 4096
"""Elements from which a call of torch costs less than NumPy's loop."""
_FP8 = {
    "fp8e4nv": torch.float8_e4m3fn,
    "fp8e5": torch.float8_e5m2,
    "fp8e4b8": torch.float8_e4m3fnuz,
    "fp8e5b16": torch.float8_e5m2fnuz,
}
_E4B15 = "fp8e4b15"
"""A format that PyTorch lacks: no infinity, no NaN, at most 1.875."""


def by_torch(function: Callable[..., Any], *arrays: Array) -> Array:
    """Apply a torch function to arrays. Torch modes that record or redirect calls do not see it."""
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch(), torch.no_grad():
        # from_numpy takes neither negative strides nor read-only memory
        tensors = [torch.from_numpy(np.require(item, requirements=["C", "W"])) for item in arrays]
        result: Array = function(*tensors).numpy()
        return result


def widen(data: Array) -> Array:
    """Convert bf16 bits to fp32 values."""
    wide = data.astype(np.uint32)
    wide <<= np.uint32(16)
    return wide.view(np.float32)


def narrow(data: Array) -> Array:
    """Convert fp32 values to bf16 bits, rounded to nearest even; NaN stays NaN."""
    data = np.ascontiguousarray(data, dtype=np.float32)
    bits = data.view(np.uint32)
    rounded = bits >> np.uint32(16)
    rounded &= np.uint32(1)
    rounded += np.uint32(0x7FFF)
    rounded += bits
    rounded >>= np.uint32(16)
    result = rounded.astype(np.uint16)
    nan = np.isnan(data)
    if nan.any():
        result[nan] = 0x7FC0
    return result


def to_half(data: Array) -> Array:
    """Convert float32 or float64 values to float16."""
    if data.size < _LARGE or data.dtype != np.float32:
        return data.astype(np.float16)
    return by_torch(lambda x: x.to(torch.float16), data)


def from_half(data: Array) -> Array:
    """Convert float16 values to float32."""
    if data.size < _LARGE:
        return data.astype(np.float32)
    return by_torch(lambda x: x.to(torch.float32), data)


@functools.cache
def _fp8_values(name: str) -> Array:
    """The float32 value of each of the 256 bit patterns."""
    if name == _E4B15:
        bits = np.arange(256)
        exponent, mantissa = bits >> 3 & 15, (bits & 7) / 8
        numbers = np.where(exponent, (1 + mantissa) * 2.0 ** (exponent - 15), mantissa * 2.0**-14)
        return np.where(bits < 128, numbers, -numbers).astype(np.float32)
    return by_torch(lambda x: x.view(_FP8[name]).to(torch.float32), np.arange(256, dtype=np.uint8))


@functools.cache
def _fp8_largest(name: str) -> float:
    return float(_fp8_values(name)[127]) if name == _E4B15 else float(torch.finfo(_FP8[name]).max)


def from_fp8(data: Array, dtype: Any) -> Array:
    """Convert fp8 bits to float32 values."""
    return _fp8_values(dtype.name).take(data)


def to_fp8(data: Array, dtype: Any) -> Array:
    """Convert float values to fp8 bits, rounded to nearest even, too large ones to the largest."""
    most = np.float32(_fp8_largest(dtype.name))
    wide = np.clip(data.astype(np.float32, copy=False), -most, most)
    if dtype.name == _E4B15:
        return _to_e4b15(wide)
    return by_torch(lambda x: x.to(_FP8[dtype.name]).view(torch.uint8), wide).reshape(data.shape)


def _to_e4b15(data: Array) -> Array:
    """The nearest of the positive values; of two as near the even one."""
    positive = _fp8_values(_E4B15)[:128]
    middles = (positive[1:] + positive[:-1]) / 2
    size = np.abs(data)
    low, high = (np.searchsorted(middles, size, side=side) for side in ("left", "right"))
    nearest = np.where(low % 2 == 0, low, high).astype(np.uint8)
    return nearest | (np.signbit(data).astype(np.uint8) << np.uint8(7))


def to_fp8_towards_zero(data: Array, dtype: Any) -> Array:
    """Convert float values to fp8 bits, rounded towards zero."""
    bits = to_fp8(data, dtype)
    away = np.abs(from_fp8(bits, dtype)) > np.abs(data.astype(np.float32, copy=False))
    return np.where(away, bits - np.uint8(1), bits)


def tf32(data: Array) -> Array:
    """Truncate fp32 values to 10 bits of mantissa.

    Tensor cores ignore the other 13 (seen on sm_90, to 2e-7).
    """
    bits = np.ascontiguousarray(data).view(np.uint32)
    cut = (bits & np.uint32(0xFFFFE000)).view(np.float32)
    nan = np.isnan(data)
    return np.where(nan, data, cut) if nan.any() else cut


def values(handle: Any) -> Array:
    """The handle's data as numbers: bf16 and fp8 bits become fp32, all else is unchanged."""
    data: Array = handle.data
    dtype = handle.dtype.scalar
    if dtype.name == "bf16":
        return widen(data)
    return from_fp8(data, dtype) if dtype.is_fp8() else data


def wide_values(handle: Any) -> Array:
    """Like `values`, with fp16 as fp32 too."""
    data = values(handle)
    return from_half(data) if data.dtype == np.float16 else data
