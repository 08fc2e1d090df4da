"""Make the interpreter's arithmetic agree with a GPU.

The stock interpreter keeps bf16 as raw 16-bit integers and adds, compares and multiplies those integers; its
casts to bf16 truncate; maximum and minimum propagate NaN; float to int casts overflow. Here bf16 arithmetic
is done in fp32 and rounded to nearest even. tl.dot accumulates in fp32, and rounds fp32 operands to TF32
where the GPU would. Integers wrap, and float to int casts saturate.

Not modelled: the order of a GPU's sums, approximate hardware functions (ex2.approx and the like), flushing of
denormals, 8-bit floats.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from triton._C.libtriton import ir
from triton.runtime import interpreter as stock

from kernelmill.evaluate.interpreter.speed import np_dtype
from kernelmill.evaluate.interpreter_gaps import Unsupported

Array = np.ndarray[Any, Any]
Handle = stock.TensorHandle
Builder = stock.InterpreterBuilder


def widen(data: Array) -> Array:
    """Convert bf16 bits to fp32 values."""
    return (data.astype(np.uint32) << np.uint32(16)).view(np.float32)


def narrow(data: Array) -> Array:
    """Convert fp32 values to bf16 bits, rounded to nearest even; NaN stays NaN."""
    bits = np.ascontiguousarray(data, dtype=np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    result = rounded.astype(np.uint16)
    nan = np.isnan(data)
    if nan.any():
        result[nan] = 0x7FC0
    return result.reshape(np.shape(data))


def tf32(data: Array) -> Array:
    """Truncate fp32 values to 10 bits of mantissa.

    Tensor cores ignore the other 13 (seen on sm_90, to 2e-7).
    """
    bits = np.ascontiguousarray(data).view(np.uint32)
    return np.where(np.isnan(data), data, (bits & np.uint32(0xFFFFE000)).view(np.float32))


def is_bf16(dtype: Any) -> bool:
    return bool(dtype.name == "bf16")


def values(handle: Any) -> Array:
    """The handle's data as numbers: bf16 bits become fp32, all else is unchanged."""
    data: Array = handle.data
    return widen(data) if handle.dtype.scalar.name == "bf16" else data


def as_handle(numbers: Array, dtype: Any) -> Any:
    """A handle of this type for these numbers, rounded to it."""
    if dtype.name == "bf16":
        return Handle(narrow(numbers), dtype)
    if dtype.is_fp8():
        raise Unsupported("fp8")
    wanted = np_dtype(dtype)
    return Handle(numbers if numbers.dtype == wanted else numbers.astype(wanted), dtype)


def _float_binary(operation: Any) -> Callable[[Any, Any, Any], Any]:
    def run(self: Any, lhs: Any, rhs: Any) -> Any:
        dtype = lhs.dtype.scalar
        if dtype.name == "bf16":
            return Handle(narrow(operation(widen(lhs.data), widen(rhs.data))), dtype)
        return Handle(operation(lhs.data, rhs.data), dtype)

    return run


def _compare(operation: Any) -> Callable[[Any, Any, Any], Any]:
    def run(self: Any, lhs: Any, rhs: Any) -> Any:
        return Handle(operation(values(lhs), values(rhs)), tl.int1)

    return run


FLOAT_BINARY = {
    "create_fadd": np.add,
    "create_fsub": np.subtract,
    "create_fmul": np.multiply,
    "create_fdiv": np.divide,
    "create_precise_divf": np.divide,
    "create_frem": np.fmod,
    # PTX min and max return the operand that is a number; only the *imumf forms propagate NaN.
    "create_minnumf": np.fmin,
    "create_maxnumf": np.fmax,
    "create_minimumf": np.minimum,
    "create_maximumf": np.maximum,
}
COMPARE = {"LE": np.less_equal, "LT": np.less, "GE": np.greater_equal, "GT": np.greater}
EQUALITY = {"EQ": np.equal, "NE": np.not_equal}


def _saturate(data: Array, dtype: Any) -> Array:
    """Convert float to int as PTX does: towards zero, out of range to the nearest representable, NaN to 0.

    Two exceptions, as seen on sm_90: NaN gives the lowest 64-bit integer, and an 8-bit result is the low half
    of a 16-bit one.
    """
    through = np.dtype(f"{dtype.kind}2") if dtype.itemsize == 1 else dtype
    info = np.iinfo(through)
    wide = np.trunc(data.astype(np.float64))
    nan, high, low = np.isnan(wide), wide >= float(info.max), wide <= float(info.min)
    result = np.where(nan | high | low, 0.0, wide).astype(through)
    result[high] = info.max
    result[low] = info.min
    if through == np.int64:
        result[nan] = info.min
    return result.astype(dtype)


def _cast(self: Any, src: Any, dst_type: Any) -> Any:
    source, target = src.dtype.scalar, dst_type.scalar
    if source.is_fp8() or target.is_fp8():
        raise Unsupported("fp8")
    numbers = values(src)
    if target.is_floating():
        return as_handle(numbers.astype(np.float32) if is_bf16(target) else numbers, target)
    wanted = np_dtype(target)
    if numbers.dtype.kind == "f" and wanted.kind in "iu":
        return Handle(_saturate(numbers, wanted), target)
    return Handle(numbers.astype(wanted), target)


def _fp_to_fp(self: Any, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
    if rounding_mode != ir.ROUNDING_MODE.RTZ:
        return _cast(self, src, dst_type)
    target = dst_type.scalar
    if target.is_fp8() or src.dtype.scalar.is_fp8():
        raise Unsupported("fp8")
    numbers = values(src)
    if is_bf16(target):
        bits = np.ascontiguousarray(numbers, dtype=np.float32).view(np.uint32)
        return Handle((bits >> np.uint32(16)).astype(np.uint16), target)
    wanted = np_dtype(target)
    rounded = numbers.astype(wanted)
    away = np.abs(rounded.astype(np.float64)) > np.abs(numbers.astype(np.float64))
    return Handle(np.where(away, np.nextafter(rounded, wanted.type(0)), rounded), target)


def _dot(self: Any, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: Any) -> Any:
    left, right, out = a.dtype.scalar, b.dtype.scalar, d.dtype.scalar
    if left.is_fp8() or right.is_fp8():
        raise Unsupported("fp8")
    if left.is_int():
        # Products of 8-bit integers sum exactly in float64, and that multiplication is fast.
        product = np.matmul(a.data.astype(np.float64), b.data.astype(np.float64)).astype(np.int64)
        return Handle((product + d.data).astype(np_dtype(out)), out)
    lhs, rhs = values(a), values(b)
    if left.is_fp64():
        return Handle(np.matmul(lhs, rhs) + d.data, out)
    lhs, rhs = lhs.astype(np.float32, copy=False), rhs.astype(np.float32, copy=False)
    if left.is_fp32() and input_precision == ir.INPUT_PRECISION.TF32:
        product = np.matmul(tf32(lhs), tf32(rhs))
    elif left.is_fp32() and input_precision == getattr(ir.INPUT_PRECISION, "BF16x3", None):
        lhs_high, rhs_high = widen(narrow(lhs)), widen(narrow(rhs))
        lhs_low, rhs_low = widen(narrow(lhs - lhs_high)), widen(narrow(rhs - rhs_high))
        product = np.matmul(lhs_high, rhs_low) + np.matmul(lhs_low, rhs_high) + np.matmul(lhs_high, rhs_high)
    else:
        product = np.matmul(lhs, rhs)
    return as_handle(product + values(d), out)


def _fma(self: Any, x: Any, y: Any, z: Any) -> Any:
    exact = values(x).astype(np.float64) * values(y) + values(z)
    return as_handle(exact.astype(np.float32) if is_bf16(z.dtype.scalar) else exact, z.dtype.scalar)


def _clamp(self: Any, arg: Any, low: Any, high: Any, propagate_nans: Any) -> Any:
    numbers = np.fmin(np.fmax(values(arg), values(low)), values(high))
    if propagate_nans == ir.PROPAGATE_NAN.ALL:
        numbers = np.where(np.isnan(values(arg)), np.float32(np.nan), numbers)
    return as_handle(numbers, arg.dtype.scalar)


def _shift_right_arithmetic(self: Any, lhs: Any, rhs: Any) -> Any:
    signed = lhs.data.astype(stock._get_signed_np_dtype(lhs.data.dtype))
    shifted = np.right_shift(signed, rhs.data.astype(signed.dtype))
    return Handle(shifted.astype(lhs.data.dtype), lhs.dtype.scalar)


def _refuse_dot_scaled(self: Any, *args: Any, **kwargs: Any) -> Any:
    raise Unsupported("dot_scaled")


def _refuse_asm(self: Any, *args: Any, **kwargs: Any) -> Any:
    raise Unsupported("inline asm")


def _bf16_constant(self: Any, value: float) -> Any:
    return Handle(narrow(np.array([value], dtype=np.float32)), tl.bfloat16)


def _negate(self: Any, arg: Any) -> Any:
    return as_handle(np.negative(values(arg)), arg.dtype.scalar)


def install() -> None:
    for name, operation in FLOAT_BINARY.items():
        setattr(Builder, name, _float_binary(operation))
    for suffix, operation in COMPARE.items():
        for prefix in ("create_icmpS", "create_icmpU", "create_fcmpO", "create_fcmpU"):
            setattr(Builder, prefix + suffix, _compare(operation))
    for suffix, operation in EQUALITY.items():
        for prefix in ("create_icmp", "create_fcmpO", "create_fcmpU"):
            setattr(Builder, prefix + suffix, _compare(operation))
    Builder.cast_impl = _cast
    Builder.create_fp_to_fp = _fp_to_fp
    Builder.create_dot = _dot
    Builder.create_dot_scaled = _refuse_dot_scaled
    Builder.create_inline_asm = _refuse_asm
    Builder.create_fma = _fma
    Builder.create_fneg = _negate
    Builder.create_clampf = _clamp
    Builder.create_ashr = _shift_right_arithmetic
    Builder.get_bf16 = _bf16_constant
    builder = stock.interpreter_builder
    # Overflow checks feed a device_assert that is off by default, also on a GPU: they only cost time here.
    builder.options = dataclasses.replace(
        builder.options,
        sanitize_overflow=False,
        allowed_dot_input_precisions=("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6"),
    )
