"""Numbers: the kernels give what a GPU would give."""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl

from kernelmill.evaluate.interpreter import is_unsupported, observer
from tests.evaluate.interpreter.raised import raised_by

FLOATS = (torch.float32, torch.float16, torch.bfloat16)


@triton.jit
def _binary(x, y, out, OP: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b = tl.load(x + at), tl.load(y + at)
    if OP == "add":
        c = a + b
    elif OP == "sub":
        c = a - b
    elif OP == "mul":
        c = a * b
    elif OP == "div":
        c = a / b
    elif OP == "max":
        c = tl.maximum(a, b)
    else:
        c = tl.where(a < b, a, b)
    tl.store(out + at, c)


def case_elementwise_arithmetic_equals_torch_to_the_bit():
    torch.manual_seed(0)
    expected = {
        "add": torch.add,
        "sub": torch.sub,
        "mul": torch.mul,
        "div": torch.div,
        "max": torch.maximum,
        "where": torch.minimum,
    }
    for dtype in FLOATS:
        x, y = torch.randn(1024).to(dtype), torch.randn(1024).to(dtype)
        for name, function in expected.items():
            out = torch.empty_like(x)
            _binary[(1,)](x, y, out, OP=name, N=1024)
            assert torch.equal(out, function(x, y)), (dtype, name)


@triton.jit
def _constants(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    a = tl.load(x + at)
    ones = tl.full((N,), 1.5, tl.bfloat16)
    tl.store(out + at, -a * 3.0 + ones)


def case_bf16_meets_constants_as_on_a_gpu():
    x = torch.randn(64).bfloat16()
    out = torch.empty_like(x)
    _constants[(1,)](x, out, N=64)
    assert torch.equal(out, -x * 3.0 + 1.5)


@triton.jit
def _cast(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(x + at).to(out.dtype.element_ty))


def case_casts_between_floats_round_to_nearest_even():
    torch.manual_seed(1)
    special = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), 1e-40, -1e-40, 3.3895e38, 1.00390625])
    x = torch.cat([torch.randn(1016) * 10, special])
    for source in (torch.float64, *FLOATS):
        for target in FLOATS:
            given = x.to(source)
            out = torch.empty(1024, dtype=target)
            _cast[(1,)](given, out, N=1024)
            assert torch.equal(out, given.float().to(target) if source != target else given), (source, target)
    nan = torch.full((16,), float("nan"))
    out = torch.zeros(16, dtype=torch.bfloat16)
    _cast[(1,)](nan, out, N=16)
    assert out.isnan().all()


def case_floats_become_integers_by_saturation():
    x = torch.tensor([1.9, -1.9, 3e9, -3e9, float("nan"), float("inf"), 0.5, -0.5])
    out = torch.empty(8, dtype=torch.int32)
    _cast[(1,)](x, out, N=8)
    assert out.tolist() == [1, -1, 2**31 - 1, -(2**31), 0, 2**31 - 1, 0, 0]
    for dtype, expected in (
        (torch.int64, [1, -1, 3 * 10**9, -3 * 10**9, -(2**63), 2**63 - 1, 0, 0]),
        (torch.int8, [1, -1, -1, 0, 0, -1, 0, 0]),
        (torch.uint8, [1, 0, 255, 0, 0, 255, 0, 0]),
    ):
        out = torch.empty(8, dtype=dtype)
        _cast[(1,)](x, out, N=8)
        assert out.tolist() == expected, dtype
    as_bf16 = torch.tensor([1.9, -300.0, 7.0, 0.0]).bfloat16()
    out = torch.empty(4, dtype=torch.int32)
    _cast[(1,)](as_bf16, out, N=4)
    assert out.tolist() == [1, -300, 7, 0]


@triton.jit
def _overflow(out, n, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, (at + n) * 65536)


def case_int32_wraps_around():
    out = torch.empty(4, dtype=torch.int32)
    _overflow[(1,)](out, 32768, N=4)
    expected = ((torch.arange(4) + 32768) * 65536).to(torch.int32)
    assert torch.equal(out, expected)


@triton.jit
def _reduce(x, out, OP: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    rows, columns = tl.arange(0, M), tl.arange(0, N)
    a = tl.load(x + rows[:, None] * N + columns[None, :])
    if OP == "sum":
        r = tl.sum(a, axis=1)
    elif OP == "max":
        r = tl.max(a, axis=1)
    elif OP == "min":
        r = tl.min(a, axis=1)
    elif OP == "argmax":
        r = tl.argmax(a, axis=1)
    else:
        r = tl.argmin(a, axis=1)
    tl.store(out + rows, r)


def case_reductions_equal_torch():
    torch.manual_seed(2)
    for dtype in FLOATS:
        # Whole numbers sum exactly in every one of these types.
        x = torch.randint(-8, 8, (16, 64)).to(dtype)
        for name, function in {
            "sum": lambda t: t.float().sum(1),
            "max": lambda t: t.amax(1).float(),
            "min": lambda t: t.amin(1).float(),
        }.items():
            out = torch.empty(16)
            _reduce[(1,)](x, out, OP=name, M=16, N=64)
            assert torch.equal(out, function(x)), (dtype, name)
        x = torch.randn(16, 64).to(dtype)
        for name, function in {"argmax": torch.argmax, "argmin": torch.argmin}.items():
            out = torch.empty(16, dtype=torch.int32)
            _reduce[(1,)](x, out, OP=name, M=16, N=64)
            values = x.float().gather(1, out.long()[:, None])[:, 0]
            assert torch.equal(values, x.float().gather(1, function(x.float(), 1)[:, None])[:, 0]), (
                dtype,
                name,
            )


def case_a_sum_of_floats_is_as_good_as_the_type_allows():
    torch.manual_seed(3)
    for dtype, bound in ((torch.float32, 1e-6), (torch.float16, 5e-3), (torch.bfloat16, 4e-2)):
        x = torch.randn(16, 64).to(dtype)
        out = torch.empty(16)
        _reduce[(1,)](x, out, OP="sum", M=16, N=64)
        exact = x.double().sum(1)
        assert (out.double() - exact).norm() / exact.norm() < bound, dtype


@triton.jit
def _nan_max(x, y, out, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(out + at, tl.maximum(a, b))
    tl.store(out + N + at, tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL))
    tl.store(out + 2 * N + at, tl.full((N,), 0.0, tl.float32) + tl.max(a, 0))


def case_maximum_drops_nan_unless_told_otherwise():
    nan = float("nan")
    x, y = torch.tensor([nan, 1.0, 2.0, nan]), torch.tensor([0.0, nan, 3.0, nan])
    out = torch.empty(12)
    _nan_max[(1,)](x, y, out, N=4)
    assert out[:3].tolist() == [0.0, 1.0, 3.0]
    assert out[3].isnan()
    assert out[4:8].isnan().tolist() == [True, True, False, True]
    assert out[8:].tolist() == [2.0] * 4


@triton.jit
def _dot(a, b, out, PRECISION: tl.constexpr, M: tl.constexpr, K: tl.constexpr, N: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + m[:, None] * K + k[None, :])
    y = tl.load(b + k[:, None] * N + n[None, :])
    if PRECISION == "":
        c = tl.dot(x, y)
    else:
        c = tl.dot(x, y, input_precision=PRECISION)
    tl.store(out + m[:, None] * N + n[None, :], c)


def _relative(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a.double() - b.double()).norm() / b.double().norm())


def case_dot_of_16_bit_floats_accumulates_in_fp32():
    torch.manual_seed(4)
    for dtype in (torch.float16, torch.bfloat16):
        a, b = torch.randn(32, 64).to(dtype), torch.randn(64, 16).to(dtype)
        out = torch.empty(32, 16)
        _dot[(1,)](a, b, out, PRECISION="", M=32, K=64, N=16)
        assert _relative(out, a.double() @ b.double()) < 3e-7, dtype


def case_dot_of_fp32_is_tf32_unless_told_otherwise():
    torch.manual_seed(5)
    a, b = torch.randn(32, 64), torch.randn(64, 16)
    exact = a.double() @ b.double()
    errors = {}
    for precision in ("", "tf32", "tf32x3", "ieee", "bf16x3"):
        out = torch.empty(32, 16)
        _dot[(1,)](a, b, out, PRECISION=precision, M=32, K=64, N=16)
        errors[precision] = _relative(out, exact)
    assert errors[""] == errors["tf32"]
    assert 5e-4 < errors["tf32"] < 1e-3
    assert errors["ieee"] < 3e-7
    assert errors["tf32x3"] < 3e-7
    assert 3e-7 < errors["bf16x3"] < 5e-5


def case_tf32_drops_all_but_ten_bits():
    a = torch.zeros(16, 16)
    a[0, 0], a[1, 0], a[2, 0] = 1 + 2**-10 + 2**-11, -1 - 2**-11, 1 + 2**-10
    out = torch.empty(16, 16)
    _dot[(1,)](a, torch.eye(16), out, PRECISION="tf32", M=16, K=16, N=16)
    assert out[:3, 0].tolist() == [1 + 2**-10, -1.0, 1 + 2**-10]


@triton.jit
def _int_dot(a, b, out, N: tl.constexpr):
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    tl.store(out + at, tl.dot(tl.load(a + at), tl.load(b + at)))


def case_dot_of_int8_is_exact():
    a = torch.randint(-128, 128, (32, 32), dtype=torch.int8)
    b = torch.randint(-128, 128, (32, 32), dtype=torch.int8)
    out = torch.empty(32, 32, dtype=torch.int32)
    _int_dot[(1,)](a, b, out, N=32)
    assert torch.equal(out, a.int() @ b.int())


@triton.jit
def _join(a_real, a_gate, b_real, b_gate):
    return b_real + b_gate * a_real, a_gate * b_gate


@triton.jit
def _bigger(a, i, b, j):
    take = a > b or (a == b and i < j)
    return tl.where(take, a, b), tl.where(take, i, j)


@triton.jit
def _branching(a, b):
    if a > b:
        r = a
    else:
        r = b
    return r


@triton.jit
def _custom(x, g, out, where, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b = tl.load(x + at), tl.load(g + at)
    state, _ = tl.associative_scan((a, b), 0, _join)
    tl.store(out + at, state)
    tl.store(out + N + at, tl.cumsum(a, 0))
    tl.store(out + 2 * N + at, tl.cumsum(a, 0, reverse=True))
    tl.store(out + 3 * N + at, tl.associative_scan(a, 0, _branching))
    best, index = tl.reduce((a, at), 0, _bigger)
    tl.store(where, index)
    tl.store(where + 1, (tl.reduce(a, 0, _branching) == best).to(tl.int32))


def case_any_combine_function_scans_and_reduces_in_order():
    torch.manual_seed(6)
    x, gate = torch.randn(64), torch.rand(64)
    out, where = torch.empty(4, 64), torch.empty(2, dtype=torch.int32)
    _custom[(1,)](x, gate, out, where, N=64)
    state, expected = 0.0, []
    for value, keep in zip(x.tolist(), gate.tolist(), strict=True):
        state = state * keep + value
        expected.append(state)
    assert torch.allclose(out[0], torch.tensor(expected), atol=1e-5)
    assert torch.allclose(out[1], x.cumsum(0), atol=1e-5)
    assert torch.allclose(out[2], x.flip(0).cumsum(0).flip(0), atol=1e-5)
    assert torch.equal(out[3], x.cummax(0).values)
    assert where.tolist() == [int(x.argmax()), 1]


@triton.jit
def _sorted(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.sort(tl.load(x + at)))


def case_sort_sorts():
    for dtype in (torch.float32, torch.int32):
        x = (torch.randn(128) * 100).to(dtype)
        out = torch.empty_like(x)
        _sorted[(1,)](x, out, N=128)
        assert torch.equal(out, x.sort().values)


@triton.jit
def _asm(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    y = tl.inline_asm_elementwise("ex2.approx.f32 $0, $1;", "=f,f", [tl.load(x + at)], tl.float32, True, 1)
    tl.store(out + at, y)


@triton.jit
def _scaled(x, out, N: tl.constexpr):
    at = tl.arange(0, 32)
    bits = (at[:, None] + at[None, :]).to(tl.uint8)
    scale = tl.full((32, 1), 127, tl.uint8)
    product = tl.dot_scaled(bits, scale, "e4m3", bits, scale, "e4m3")
    tl.store(out + at, tl.sum(product, axis=0), mask=at < N)


@triton.jit
def _own_error(x, out, N: tl.constexpr):
    tl.store(out + tl.arange(0, N), tl.load(x + tl.arange(0, 2 * N)))


def case_what_cannot_be_run_is_told_from_what_is_wrong():
    x, out = torch.randn(16), torch.empty(16)
    for kernel, word in ((_asm, "inline asm"), (_scaled, "dot_scaled")):
        observer.begin()
        assert word in str(is_unsupported(raised_by(functools.partial(kernel[(1,)], x, out, N=16))))
        observer.end()
    error = raised_by(lambda: _own_error[(1,)](x, out, N=16))
    assert isinstance(error, ValueError)
    assert is_unsupported(error) is None
