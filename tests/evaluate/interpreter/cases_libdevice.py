"""libdevice by NumPy: the values, and every way of reaching them."""

from __future__ import annotations

import importlib.util
import math

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.cuda import libdevice as cuda_libdevice
from triton.language.extra.libdevice import tanh as imported_tanh

from kernelmill.evaluate.interpreter import Unsupported
from kernelmill.evaluate.interpreter.operations.libdevice import SYMBOLS
from tests.evaluate.interpreter.raised import raised_by


@triton.jit
def _unary(x, out, F: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, F(tl.load(x + at)))


@triton.jit
def _binary(x, y, out, F: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, F(tl.load(x + at), tl.load(y + at)))


UNARY = {
    "tanh": torch.tanh,
    "erf": torch.erf,
    "erfc": torch.erfc,
    "exp": torch.exp,
    "exp2": torch.exp2,
    "exp10": lambda x: 10**x,
    "expm1": torch.expm1,
    "sin": torch.sin,
    "cos": torch.cos,
    "tan": torch.tan,
    "atan": torch.atan,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "asinh": torch.asinh,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "trunc": torch.trunc,
    "rint": torch.round,
    "nearbyint": torch.round,
    "round": lambda x: torch.sign(x) * torch.floor(x.abs() + 0.5),
    "abs": torch.abs,
    "cbrt": lambda x: torch.sign(x) * x.abs().double().pow(1 / 3),
    "fast_expf": torch.exp,
    "fast_sinf": torch.sin,
    "fast_cosf": torch.cos,
    "normcdf": torch.special.ndtr,
}
POSITIVE = {
    "log": torch.log,
    "log2": torch.log2,
    "log10": torch.log10,
    "log1p": torch.log1p,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "lgamma": torch.lgamma,
    "tgamma": lambda x: torch.lgamma(x).exp(),
    "fast_logf": torch.log,
    "acosh": lambda x: torch.acosh(x + 1),
}
UNIT = {"asin": torch.asin, "acos": torch.acos, "atanh": torch.atanh, "erfinv": torch.erfinv}
BINARY = {
    "pow": torch.pow,
    "atan2": torch.atan2,
    "hypot": torch.hypot,
    "fmod": torch.fmod,
    "copysign": torch.copysign,
    "div_rn": torch.div,
    "mul_rn": torch.mul,
    "add_rn": torch.add,
    "fdim": lambda x, y: torch.clamp(x - y, min=0),
}


def _close(out: torch.Tensor, expected: torch.Tensor, name: str) -> None:
    error = ((out.double() - expected.double()).abs() / expected.double().abs().clamp(min=1e-30)).max()
    assert error < 1.3e-7, (name, float(error))


def case_unary_functions_are_right_to_the_last_bit():
    torch.manual_seed(0)
    groups = (
        (UNARY, torch.randn(512) * 2),
        (POSITIVE, torch.rand(512) * 20 + 1e-3),
        (UNIT, torch.rand(512) * 1.9 - 0.95),
    )
    for table, x in groups:
        for name, function in table.items():
            given = x + 1 if name == "acosh" else x
            out = torch.empty(512)
            _unary[(1,)](given, out, F=getattr(libdevice, name), N=512)
            exact = function(x.double()) if name != "acosh" else torch.acosh(given.double())
            _close(out, exact, name)


def case_binary_functions_are_right_to_the_last_bit():
    torch.manual_seed(1)
    x, y = torch.rand(512) * 3 + 0.1, torch.randn(512) + 0.01
    for name, function in BINARY.items():
        out = torch.empty(512)
        _binary[(1,)](x, y, out, F=getattr(cuda_libdevice, name), N=512)
        _close(out, function(x.double(), y.double()), name)


def case_double_precision_stays_double():
    x, out = torch.randn(16, dtype=torch.float64), torch.empty(16, dtype=torch.float64)
    _unary[(1,)](x, out, F=libdevice.erf, N=16)
    assert torch.allclose(out, torch.erf(x), rtol=1e-15, atol=0)


def case_integer_functions():
    x = torch.tensor([0, 1, 8, -1, 255, 2**30, -(2**31), 12345], dtype=torch.int32)
    out = torch.empty(8, dtype=torch.int32)
    bits = [format(value & 0xFFFFFFFF, "032b") for value in x.tolist()]
    expected = {
        "clz": [len(b) - len(b.lstrip("0")) for b in bits],
        "popc": [b.count("1") for b in bits],
        "ffs": [b[::-1].find("1") + 1 for b in bits],
        "brev": [int(b[::-1], 2) for b in bits],
    }
    for name, values in expected.items():
        _unary[(1,)](x, out, F=getattr(libdevice, name), N=8)
        assert [value & 0xFFFFFFFF for value in out.tolist()] == values, name
    y = torch.full((8,), 2**20, dtype=torch.int32)
    _binary[(1,)](x, y, out, F=libdevice.mulhi, N=8)
    assert out.tolist() == [(a * 2**20) >> 32 for a in x.tolist()]


def case_tests_of_floats():
    x = torch.tensor([0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1.0, -1.0, 1e-40])
    out = torch.empty(8, dtype=torch.int32)
    for name, expected in {
        "isnan": x.isnan(),
        "isinf": x.isinf(),
        "signbit": torch.signbit(x),
        "finitef": x.isfinite(),
    }.items():
        _unary[(1,)](x, out, F=getattr(libdevice, name), N=8)
        assert torch.equal(out.bool(), expected), name


@triton.jit
def _paths(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    a = tl.load(x + at)
    tl.store(out + at, tl.extra.cuda.libdevice.tanh(a))
    tl.store(out + N + at, libdevice.tanh(a))
    tl.store(out + 2 * N + at, imported_tanh(a))
    tl.store(out + 3 * N + at, tl.math.erf(a))
    tl.store(out + 4 * N + at, libdevice.pow(a, 2.0))


def case_every_import_path_leads_here():
    x, out = torch.randn(16), torch.empty(5, 16)
    _paths[(1,)](x, out, N=16)
    for row in out[:3]:
        assert torch.allclose(row, torch.tanh(x), rtol=1e-6)
    assert torch.allclose(out[3], torch.erf(x), rtol=1e-6)
    assert torch.allclose(out[4], x**2, rtol=1e-6)


def case_at_least_a_hundred_symbols_and_the_rest_are_refused():
    assert len(SYMBOLS) > 100
    x, out = torch.randn(16), torch.empty(16)
    error = raised_by(lambda: _binary[(1,)](torch.ones(16, dtype=torch.int32), x, out, F=libdevice.jn, N=16))
    assert isinstance(error, Unsupported)
    assert "jn" in str(error)


def case_a_half_argument_is_refused_as_by_the_compiler():
    x = torch.randn(16).half()
    error = raised_by(lambda: _unary[(1,)](x, torch.empty(16), F=libdevice.tanh, N=16))
    assert isinstance(error, (KeyError, ValueError))


def case_special_values_survive():
    x = torch.tensor([0.0, math.inf, -math.inf, math.nan])
    out = torch.empty(4)
    _unary[(1,)](x, out, F=libdevice.erf, N=4)
    assert out[:3].tolist() == [0.0, 1.0, -1.0]
    assert out[3].isnan()


def _copy_of(name):
    spec = importlib.util.find_spec(name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_copied_rsqrt = _copy_of("triton.language.extra.libdevice").rsqrt


@triton.jit
def _by_a_copy(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, _copied_rsqrt(tl.load(x + at)))


def case_a_second_copy_of_the_module_works_too():
    x, out = torch.rand(16) + 1, torch.empty(16)
    _by_a_copy[(1,)](x, out, N=16)
    torch.testing.assert_close(out, x.rsqrt())
