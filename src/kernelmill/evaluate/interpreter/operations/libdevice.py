"""libdevice functions by NumPy (and torch for the special functions), under all of their import paths.

The functions in triton.language.extra.cuda.libdevice choose a symbol (`__nv_tanhf`, ...) by the argument
types and pass it to the builder; here the builder computes it. Floats are computed in double precision and
rounded once. `fast_` variants are computed exactly. Arithmetic with directed rounding (_rz, _ru, _rd) rounds
to nearest. A function that is not listed here raises Unsupported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from triton.language.extra import cuda as extra_cuda
from triton.language.extra import libdevice as generic
from triton.language.extra.cuda import libdevice as cuda
from triton.runtime import interpreter as stock

from kernelmill.evaluate.interpreter.handles import Array, Handle, np_dtype
from kernelmill.evaluate.interpreter.language import bind_builtins
from kernelmill.evaluate.interpreter.operations import floats
from kernelmill.evaluate.interpreter_gaps import Unsupported

Function = Callable[..., Any]


def by_torch(function: Function) -> Function:
    """A torch special function for NumPy arrays."""
    return lambda *arrays: floats.by_torch(function, *(item.astype(np.float64) for item in arrays))


def _round_half_away(x: Array) -> Any:
    return np.trunc(x + np.copysign(0.5, x)) if x.dtype == np.float64 else np.round(x)


def _unsigned(x: Array) -> Any:
    return x.view(np.dtype(f"u{x.dtype.itemsize}"))


def _bits(x: Array) -> Any:
    """The bits of each integer, most significant first, on a new last axis."""
    width = x.dtype.itemsize * 8
    shifts = np.arange(width - 1, -1, -1, dtype=_unsigned(x).dtype)
    return (np.ascontiguousarray(_unsigned(x))[..., None] >> shifts) & _unsigned(x).dtype.type(1)


def _clz(x: Array) -> Any:
    set_bits = _bits(x).astype(bool)
    return np.where(set_bits.any(-1), set_bits.argmax(-1), set_bits.shape[-1]).astype(np.int32)


def _ffs(x: Array) -> Any:
    set_bits = _bits(x).astype(bool)[..., ::-1]
    return np.where(set_bits.any(-1), set_bits.argmax(-1) + 1, 0).astype(np.int32)


def _brev(x: Array) -> Any:
    flipped = _bits(x)[..., ::-1]
    width = flipped.shape[-1]
    shifts = np.arange(width - 1, -1, -1, dtype=flipped.dtype)
    return (flipped << shifts).sum(-1, dtype=flipped.dtype).view(x.dtype)


def _mulhi(x: Array, y: Array) -> Any:
    width = x.dtype.itemsize * 8
    product = x.astype(object) * y.astype(object)
    return (product >> width).astype(x.dtype)


def _byte_perm(x: Array, y: Array, selector: Array) -> Any:
    both = (_unsigned(y).astype(np.uint64) << np.uint64(32)) | _unsigned(x).astype(np.uint64)
    result = np.zeros(x.shape, dtype=np.uint32)
    for byte in range(4):
        which = (_unsigned(selector).astype(np.uint64) >> np.uint64(4 * byte)) & np.uint64(7)
        result |= (((both >> (which * np.uint64(8))) & np.uint64(0xFF)) << np.uint64(8 * byte)).astype(
            np.uint32
        )
    return result.view(x.dtype)


# Symbols without `__nv_` and without the `f` of the fp32 form. These take and return doubles.
_FLOAT: dict[str, Function] = {
    "fabs": np.abs,
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    "ceil": np.ceil,
    "copysign": np.copysign,
    "cos": np.cos,
    "cosh": np.cosh,
    "cospi": lambda x: np.cos(np.pi * np.remainder(x, 2.0)),
    "cyl_bessel_i0": by_torch(torch.special.i0),
    "cyl_bessel_i1": by_torch(torch.special.i1),
    "erf": by_torch(torch.special.erf),
    "erfc": by_torch(torch.special.erfc),
    "erfcinv": by_torch(lambda x: -torch.special.ndtri(x / 2) / 2**0.5),
    "erfcx": by_torch(torch.special.erfcx),
    "erfinv": by_torch(torch.special.erfinv),
    "exp": np.exp,
    "exp10": lambda x: np.power(10.0, x),
    "exp2": np.exp2,
    "expm1": np.expm1,
    "fdim": lambda x, y: np.where(np.isnan(x) | np.isnan(y), np.nan, np.maximum(x - y, 0.0)),
    "floor": np.floor,
    "fma": lambda x, y, z: x * y + z,
    "fmod": np.fmod,
    "hypot": np.hypot,
    "j0": by_torch(torch.special.bessel_j0),
    "j1": by_torch(torch.special.bessel_j1),
    "ldexp": lambda x, n: x * np.exp2(n.astype(np.float64)),
    "lgamma": by_torch(torch.special.gammaln),
    "log": np.log,
    "log10": np.log10,
    "log1p": np.log1p,
    "log2": np.log2,
    "logb": lambda x: np.frexp(x)[1] - 1.0,
    "nearbyint": np.rint,
    "norm3d": lambda x, y, z: np.sqrt(x * x + y * y + z * z),
    "norm4d": lambda x, y, z, t: np.sqrt(x * x + y * y + z * z + t * t),
    "normcdf": by_torch(torch.special.ndtr),
    "normcdfinv": by_torch(torch.special.ndtri),
    "pow": np.power,
    "powi": lambda x, n: np.power(x, n.astype(np.float64)),
    "rcbrt": lambda x: 1.0 / np.cbrt(x),
    "remainder": lambda x, y: x - y * np.rint(x / y),
    "rhypot": lambda x, y: 1.0 / np.hypot(x, y),
    "rint": np.rint,
    "rnorm3d": lambda x, y, z: 1.0 / np.sqrt(x * x + y * y + z * z),
    "rnorm4d": lambda x, y, z, t: 1.0 / np.sqrt(x * x + y * y + z * z + t * t),
    "round": _round_half_away,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "saturate": lambda x: np.where(np.isnan(x), 0.0, np.clip(x, 0.0, 1.0)),
    "scalbn": lambda x, n: x * np.exp2(n.astype(np.float64)),
    "sin": np.sin,
    "sinh": np.sinh,
    "sinpi": lambda x: np.sin(np.pi * np.remainder(x, 2.0)),
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
    "tgamma": by_torch(
        lambda x: torch.where(x < 0.5, _reflected_gamma(x), torch.exp(torch.special.gammaln(x)))
    ),
    "trunc": np.trunc,
    "y0": by_torch(torch.special.bessel_y0),
    "y1": by_torch(torch.special.bessel_y1),
    "fast_cos": np.cos,
    "fast_exp10": lambda x: np.power(10.0, x),
    "fast_exp": np.exp,
    "fast_fdivide": np.divide,
    "fast_log10": np.log10,
    "fast_log2": np.log2,
    "fast_log": np.log,
    "fast_pow": np.power,
    "fast_sin": np.sin,
    "fast_tan": np.tan,
}


def _reflected_gamma(x: Any) -> Any:
    return torch.pi / (torch.sin(torch.pi * x) * torch.exp(torch.special.gammaln(1.0 - x)))


_ARITHMETIC: dict[str, Function] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "sqrt": np.sqrt,
    "rcp": np.reciprocal,
    "rsqrt": _FLOAT["rsqrt"],
    "fma": _FLOAT["fma"],
}
for _name, _operation in _ARITHMETIC.items():
    for _mode in ("rn", "rz", "rd", "ru"):
        # fp32 symbols are fadd_rn or fmaf_rn, fp64 ones dadd_rn or fma_rn.
        for _symbol in (f"f{_name}_{_mode}", f"d{_name}_{_mode}", f"{_name}f_{_mode}", f"{_name}_{_mode}"):
            _FLOAT[_symbol] = _operation

# These take and return the types of the symbol: integers, or bits.
_EXACT: dict[str, Function] = {
    "abs": np.abs,
    "llabs": np.abs,
    "brev": _brev,
    "brevll": _brev,
    "byte_perm": _byte_perm,
    "clz": _clz,
    "clzll": _clz,
    "ffs": _ffs,
    "ffsll": _ffs,
    "popc": lambda x: _bits(x).sum(-1),
    "popcll": lambda x: _bits(x).sum(-1),
    "mulhi": _mulhi,
    "umulhi": _mulhi,
    "mul64hi": _mulhi,
    "umul64hi": _mulhi,
    "hadd": lambda x, y: (x.astype(np.int64) + y) >> 1,
    "uhadd": lambda x, y: (x.astype(np.uint64) + y) >> np.uint64(1),
    "rhadd": lambda x, y: (x.astype(np.int64) + y + 1) >> 1,
    "sad": lambda x, y, z: np.abs(x.astype(np.int64) - y) + z,
    "finitef": np.isfinite,
    "isfinited": np.isfinite,
    "isinff": np.isinf,
    "isinfd": np.isinf,
    "isnanf": np.isnan,
    "isnand": np.isnan,
    "signbitf": np.signbit,
    "signbitd": np.signbit,
    "nextafter": np.nextafter,
    "nextafterf": np.nextafter,
    "ilogb": lambda x: np.frexp(x)[1] - 1,
    "ilogbf": lambda x: np.frexp(x)[1] - 1,
    "llrint": np.rint,
    "llrintf": np.rint,
    "llround": _round_half_away,
    "llroundf": _round_half_away,
    "int_as_float": lambda x: x.view(np.float32),
    "uint_as_float": lambda x: x.view(np.float32),
    "float_as_int": lambda x: x.view(np.int32),
    "float_as_uint": lambda x: x.view(np.uint32),
    "longlong_as_double": lambda x: x.view(np.float64),
    "double_as_longlong": lambda x: x.view(np.int64),
}
_ROUND: dict[str, Function] = {"rn": np.rint, "rz": np.trunc, "rd": np.floor, "ru": np.ceil}
for _mode, _rounding in _ROUND.items():
    for _source in ("float", "double"):
        for _target in ("int", "uint", "ll", "ull"):
            _EXACT[f"{_source}2{_target}_{_mode}"] = _rounding
    for _source in ("int", "uint", "ll", "ull", "double"):
        for _target in ("float", "double"):
            _EXACT[f"{_source}2{_target}_{_mode}"] = np.asarray

SYMBOLS = frozenset(_FLOAT) | frozenset(_EXACT)


def _compute(symbol: str, arrays: list[Array]) -> Array:
    name = symbol.removeprefix("__nv_")
    if name in _EXACT:
        return np.asarray(_EXACT[name](*arrays))
    function = _FLOAT.get(name)
    if function is None and name.endswith("f"):
        function = _FLOAT.get(name[:-1])
    if function is None:
        raise Unsupported("libdevice", f"{symbol} has no NumPy equivalent here")
    return np.asarray(function(*(a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays)))


def _extern_elementwise(self: Any, lib: str, path: str, symbol: str, args: Any, kind: Any, pure: bool) -> Any:
    if not symbol.startswith("__nv_"):
        raise Unsupported("extern", symbol)
    dtype = kind.scalar
    arrays = np.broadcast_arrays(*(item.data for item in args))
    result = _compute(symbol, [np.ascontiguousarray(a) for a in arrays]).astype(np_dtype(dtype))
    return Handle(result, dtype, None, max((item.shape for item in args), key=len))


PACKAGES = (cuda, extra_cuda)


def install() -> None:
    stock.InterpreterBuilder.create_extern_elementwise = _extern_elementwise
    for package in PACKAGES:
        bind_builtins(package)
    _fill(generic)
    assert generic.__spec__ is not None
    loader: Any = generic.__spec__.loader
    execute = loader.exec_module

    def executed(module: Any) -> None:
        """Fill a copy of the module, too: some libraries make one."""
        execute(module)
        _fill(module)

    loader.exec_module = executed


def _fill(module: Any) -> None:
    """Replace the stubs of the generic module, which the compiler maps to the target's functions.

    Some exist only for AMD.
    """
    for name in dir(module):
        if not name.startswith("_") and callable(getattr(module, name)):
            if hasattr(cuda, name):
                setattr(module, name, getattr(cuda, name))
            else:
                delattr(module, name)
