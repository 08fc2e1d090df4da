"""Make the interpreter's arithmetic agree with a GPU, on arrays with one axis for the programs.

The stock interpreter keeps bf16 as raw 16-bit integers and adds, compares and multiplies those integers; its
casts to bf16 truncate; maximum and minimum propagate NaN; float to int casts overflow. Here bf16 and fp8
arithmetic is done in fp32 and rounded to nearest even. tl.dot accumulates in fp32, and rounds fp32 operands
to TF32 where the GPU would. Integers wrap, and float to int casts saturate.

Not modelled: the order of a GPU's sums, approximate hardware functions (ex2.approx and the like), flushing of
denormals.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton._C.libtriton import ir
from triton.runtime import interpreter as stock

from kernelmill.evaluate.interpreter.handles import Array, Handle, np_dtype
from kernelmill.evaluate.interpreter.operations.floats import (
    by_torch,
    narrow,
    tf32,
    to_fp8,
    to_fp8_towards_zero,
    to_half,
    values,
    wide_values,
    widen,
)
from kernelmill.evaluate.interpreter_gaps import Unsupported

Builder = stock.InterpreterBuilder
_HALF = np.dtype(np.float16)
_LARGE = 4096
"""Elements from which halves are computed by torch."""


def as_handle(numbers: Array, dtype: Any, shape: Any) -> Handle:
    """A handle of this type and shape for these numbers, rounded to it."""
    return Handle(rounded(numbers, dtype), dtype, None, shape)


def rounded(numbers: Array, dtype: Any) -> Array:
    """The numbers as data of this type."""
    if dtype.name == "bf16":
        return narrow(numbers)
    if dtype.is_fp8():
        return to_fp8(numbers, dtype)
    wanted = np_dtype(dtype)
    if numbers.dtype == wanted:
        return numbers
    return to_half(numbers) if wanted == _HALF else numbers.astype(wanted)


def _by_halves(name: str) -> Callable[[Array, Array], Array]:
    """A binary operation of torch on halves, which is rounded once, as NumPy's is, and much faster."""
    function = getattr(torch, name)
    return lambda left, right: by_torch(function, left, right)


_HALVES = {
    np.add: _by_halves("add"),
    np.subtract: _by_halves("sub"),
    np.multiply: _by_halves("mul"),
    np.divide: _by_halves("div"),
    np.fmax: _by_halves("fmax"),
    np.fmin: _by_halves("fmin"),
    np.maximum: _by_halves("maximum"),
    np.minimum: _by_halves("minimum"),
}


def _float_binary(operation: Any) -> Callable[[Any, Any, Any], Any]:
    halves = _HALVES.get(operation, operation)

    def run(self: Any, lhs: Any, rhs: Any) -> Any:
        dtype = lhs.dtype.scalar
        left, right = lhs.data, rhs.data
        if dtype.primitive_bitwidth > 16:
            return Handle(operation(left, right), dtype, None, lhs.shape)
        if dtype.name != "fp16":
            return as_handle(operation(values(lhs), values(rhs)), dtype, lhs.shape)
        fast = left.size > _LARGE or right.size > _LARGE
        return Handle((halves if fast else operation)(left, right), dtype, None, lhs.shape)

    return run


def _compare(operation: Any) -> Callable[[Any, Any, Any], Any]:
    def run(self: Any, lhs: Any, rhs: Any) -> Any:
        if lhs.dtype.scalar.is_floating():
            return Handle(operation(wide_values(lhs), wide_values(rhs)), tl.int1, None, lhs.shape)
        return Handle(operation(lhs.data, rhs.data), tl.int1, None, lhs.shape)

    return run


def _binary(operation: Any) -> Callable[[Any, Any, Any], Any]:
    """Integers: the result has the type of the operands, so it wraps."""

    def run(self: Any, lhs: Any, rhs: Any) -> Any:
        result = operation(lhs.data, rhs.data)
        dtype = lhs.dtype.scalar
        if result.dtype != lhs.data.dtype:
            result = result.astype(np_dtype(dtype))
        return Handle(result, dtype, None, lhs.shape)

    return run


def _quotient(left: Array, right: Array) -> Array:
    """Division towards zero."""
    if left.dtype.kind == "u" or (left.size and left.min() >= 0 and right.min() >= 0):
        result: Array = left // right
    else:
        result = (left - np.fmod(left, right)) // right
    return result


def _remainder(left: Array, right: Array) -> Array:
    """The remainder of division towards zero."""
    if left.dtype.kind == "u" or (left.size and left.min() >= 0 and right.min() > 0):
        # NumPy divides by one number much faster than it takes remainders.
        result: Array = left - left // right * right
    else:
        result = np.fmod(left, right)
    return result


def _umulhi(left: Array, right: Array) -> Array:
    """The high half of the unsigned product."""
    dtype = left.dtype
    width = dtype.itemsize * 8
    if width < 64:
        wide = np.dtype(f"u{dtype.itemsize * 2}")
        unsigned = np.dtype(f"u{dtype.itemsize}")
        product = left.view(unsigned).astype(wide) * right.view(unsigned).astype(wide)
        return (product >> wide.type(width)).astype(dtype)  # type: ignore[no-any-return]
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    a, b = left.view(np.uint64), right.view(np.uint64)
    a_high, a_low, b_high, b_low = a >> half, a & low, b >> half, b & low
    middle = a_high * b_low + (a_low * b_low >> half)
    carry = a_low * b_high + (middle & low)
    return (a_high * b_high + (middle >> half) + (carry >> half)).view(dtype)  # type: ignore[no-any-return]


def _shift_right_arithmetic(left: Array, right: Array) -> Array:
    signed = stock._get_signed_np_dtype(left.dtype)
    shifted: Array = np.right_shift(left.view(signed), right.astype(signed, copy=False))
    return shifted.view(left.dtype)


FLOAT_BINARY: dict[str, Any] = {
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
INT_BINARY: dict[str, Any] = {
    "create_add": np.add,
    "create_sub": np.subtract,
    "create_mul": np.multiply,
    "create_sdiv": _quotient,
    "create_udiv": _quotient,
    "create_idiv": _quotient,
    "create_srem": _remainder,
    "create_urem": _remainder,
    "create_shl": np.left_shift,
    "create_lshr": np.right_shift,
    "create_ashr": _shift_right_arithmetic,
    "create_minsi": np.minimum,
    "create_minui": np.minimum,
    "create_maxsi": np.maximum,
    "create_maxui": np.maximum,
    "create_and": np.bitwise_and,
    "create_or": np.bitwise_or,
    "create_xor": np.bitwise_xor,
    "create_umulhi": _umulhi,
}
COMPARE = {"LE": np.less_equal, "LT": np.less, "GE": np.greater_equal, "GT": np.greater}
EQUALITY = {"EQ": np.equal, "NE": np.not_equal}
UNARY: dict[str, Any] = {
    "create_cos": np.cos,
    "create_exp": np.exp,
    "create_exp2": np.exp2,
    "create_floor": np.floor,
    "create_ceil": np.ceil,
    "create_log": np.log,
    "create_log2": np.log2,
    "create_precise_sqrt": np.sqrt,
    "create_rsqrt": lambda x: 1 / np.sqrt(x),
    "create_sqrt": np.sqrt,
    "create_sin": np.sin,
    "create_fneg": np.negative,
}


def _unary(operation: Any) -> Callable[[Any, Any], Any]:
    def run(self: Any, arg: Any) -> Any:
        dtype = arg.dtype.scalar
        if dtype.primitive_bitwidth > 16:
            return Handle(operation(arg.data), dtype, None, arg.shape)
        return as_handle(operation(wide_values(arg)), dtype, arg.shape)

    return run


def _iabs(self: Any, arg: Any) -> Any:
    return Handle(np.abs(arg.data), arg.dtype.scalar, None, arg.shape)


def _fabs(self: Any, arg: Any) -> Any:
    """Clear the sign bit."""
    bits = arg.data.view(np.dtype(f"u{arg.data.dtype.itemsize}"))
    most = bits.dtype.type(np.iinfo(bits.dtype).max >> 1)
    return Handle((bits & most).view(arg.data.dtype), arg.dtype.scalar, None, arg.shape)


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
    target = dst_type.scalar
    if target.is_floating():
        numbers = values(src) if target.is_fp64() or target.is_fp16() else wide_values(src)
        if numbers.dtype.kind != "f" and target.primitive_bitwidth <= 16:
            numbers = numbers.astype(np.float32)
        return as_handle(numbers, target, src.shape)
    numbers = values(src)
    wanted = np_dtype(target)
    if numbers.dtype.kind == "f" and wanted.kind in "iu":
        return Handle(_saturate(numbers, wanted), target, None, src.shape)
    return Handle(numbers.astype(wanted), target, None, src.shape)


def _fp_to_fp(self: Any, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
    if rounding_mode != ir.ROUNDING_MODE.RTZ:
        return _cast(self, src, dst_type)
    target = dst_type.scalar
    numbers = values(src)
    if target.is_fp8():
        return Handle(to_fp8_towards_zero(numbers, target), target, None, src.shape)
    if target.is_bf16():
        bits = np.ascontiguousarray(numbers, dtype=np.float32).view(np.uint32)
        return Handle((bits >> np.uint32(16)).astype(np.uint16), target, None, src.shape)
    wanted = np_dtype(target)
    nearest = numbers.astype(wanted)
    away = np.abs(nearest.astype(np.float64)) > np.abs(numbers.astype(np.float64))
    return Handle(np.where(away, np.nextafter(nearest, wanted.type(0)), nearest), target, None, src.shape)


def _matrix(numbers: Array, shape: Any) -> Array:
    """The numbers as matrices that BLAS takes: no axis of a matrix may repeat one element."""
    if numbers.shape[1:] == shape and 0 not in numbers.strides[-2:]:
        return numbers
    return np.ascontiguousarray(np.broadcast_to(numbers, (numbers.shape[0], *shape)))


def _dot(self: Any, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: Any) -> Any:
    left, out = a.dtype.scalar, d.dtype.scalar
    shape = d.shape
    if left.is_int():
        # Products of 8-bit integers sum exactly in float64, and that multiplication is fast.
        lhs, rhs = (_matrix(item.data.astype(np.float64), item.shape) for item in (a, b))
        return Handle((np.matmul(lhs, rhs).astype(np.int64) + d.data).astype(np_dtype(out)), out, None, shape)
    lhs, rhs = _matrix(wide_values(a), a.shape), _matrix(wide_values(b), b.shape)
    if left.is_fp64():
        return Handle(np.matmul(lhs, rhs) + d.data, out, None, shape)
    if left.is_fp32() and input_precision == ir.INPUT_PRECISION.TF32:
        product = np.matmul(tf32(lhs), tf32(rhs))
    elif left.is_fp32() and input_precision == getattr(ir.INPUT_PRECISION, "BF16x3", None):
        lhs_high, rhs_high = widen(narrow(lhs)), widen(narrow(rhs))
        lhs_low, rhs_low = widen(narrow(lhs - lhs_high)), widen(narrow(rhs - rhs_high))
        product = np.matmul(lhs_high, rhs_low) + np.matmul(lhs_low, rhs_high) + np.matmul(lhs_high, rhs_high)
    else:
        product = np.matmul(lhs, rhs)
    return as_handle(product + wide_values(d), out, shape)


def _fma(self: Any, x: Any, y: Any, z: Any) -> Any:
    exact = values(x).astype(np.float64) * values(y) + values(z)
    dtype = z.dtype.scalar
    return as_handle(exact if dtype.primitive_bitwidth > 16 else exact.astype(np.float32), dtype, x.shape)


def _clamp(self: Any, arg: Any, low: Any, high: Any, propagate_nans: Any) -> Any:
    data = values(arg)
    numbers = np.fmin(np.fmax(data, values(low)), values(high))
    if propagate_nans == ir.PROPAGATE_NAN.ALL:
        numbers = np.where(np.isnan(data), np.float32(np.nan), numbers)
    return as_handle(numbers, arg.dtype.scalar, arg.shape)


def _erf(self: Any, arg: Any) -> Any:
    numbers = by_torch(torch.special.erf, arg.data.astype(np.float64))
    return as_handle(numbers, arg.dtype.scalar, arg.shape)


def _refuse_dot_scaled(self: Any, *args: Any, **kwargs: Any) -> Any:
    raise Unsupported("dot_scaled")


def _refuse_asm(self: Any, *args: Any, **kwargs: Any) -> Any:
    raise Unsupported("inline asm")


def _bf16_constant(self: Any, value: float) -> Any:
    return Handle(narrow(np.array([value], dtype=np.float32)), tl.bfloat16)


def _null_value(self: Any, type: Any) -> Any:
    return _constant(0, type)


def _all_ones_value(self: Any, type: Any) -> Any:
    wanted = np_dtype(type.scalar)
    if wanted.kind not in "iub":
        raise TypeError(f"unsupported type {type}")
    return _constant(True if wanted.kind == "b" else np.iinfo(wanted).max if wanted.kind == "u" else -1, type)


def _constant(value: Any, type: Any) -> Handle:
    shape = tuple(type.shape) if type.is_block() else ()
    data = np.full((1,) * (1 + len(shape)), value, dtype=np_dtype(type.scalar))
    return Handle(data, type.scalar, None, shape)


def install() -> None:
    for name, operation in FLOAT_BINARY.items():
        setattr(Builder, name, _float_binary(operation))
    for name, operation in INT_BINARY.items():
        setattr(Builder, name, _binary(operation))
    for name, operation in UNARY.items():
        setattr(Builder, name, _unary(operation))
    for suffix, operation in COMPARE.items():
        for prefix in ("create_icmpS", "create_icmpU", "create_fcmpO", "create_fcmpU"):
            setattr(Builder, prefix + suffix, _compare(operation))
    for suffix, operation in EQUALITY.items():
        for prefix in ("create_icmp", "create_fcmpO", "create_fcmpU"):
            setattr(Builder, prefix + suffix, _compare(operation))
    Builder.cast_impl = _cast
    Builder.create_fp_to_fp = _fp_to_fp
    Builder.create_dot = _dot
    type(stock.interpreter_semantic).dot_scaled = _refuse_dot_scaled
    Builder.create_inline_asm = _refuse_asm
    Builder.create_fma = _fma
    Builder.create_iabs = _iabs
    Builder.create_fabs = _fabs
    Builder.create_erf = _erf
    Builder.create_clampf = _clamp
    Builder.get_bf16 = _bf16_constant
    Builder.get_null_value = _null_value
    Builder.get_all_ones_value = _all_ones_value
    builder = stock.interpreter_builder
    # Overflow checks feed a device_assert that is off by default, also on a GPU: they only cost time here.
    builder.options = dataclasses.replace(
        builder.options,
        sanitize_overflow=False,
        allowed_dot_input_precisions=("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6"),
    )
