"""The comparison: what honest kernels do is accepted, what cheats do is refused, with the measured margins."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from kernelmill.evaluate.judge.closeness import gross  # noqa: E402
from kernelmill.evaluate.judge.comparing import Returned, right_but_for_ties  # noqa: E402
from kernelmill.evaluate.judge.tolerance import (  # noqa: E402
    Comparison,
    Policy,
    compare,
    compare_scalars,
    is_scalar,
    judgeable,
    kb_compat,
    lost_slice,
)
from kernelmill.evaluate.task.answers import Answer  # noqa: E402
from kernelmill.evaluate.task.chunked import CHUNK  # noqa: E402
from kernelmill.evaluate.task.values import Outputs  # noqa: E402

F = torch.nn.functional
TF32 = Policy(tf32=True)


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def ten_bits(x: torch.Tensor) -> torch.Tensor:
    """As TF32 rounds its operands."""
    return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def exactly(c: torch.Tensor) -> Comparison:
    return compare(c, c.double(), c)


class Product:
    def __init__(self, k: int) -> None:
        self.a, self.b = noise(96, k, seed=1), noise(k, 96, seed=2)
        self.exact = self.a.double() @ self.b.double()
        self.eager = self.a @ self.b

    def compare(self, c: torch.Tensor, policy: Policy = Policy()) -> Comparison:  # noqa: B008
        return compare(c.float(), self.exact, self.eager, policy)


@pytest.mark.parametrize("k", [256, 1024, 4096])
def test_a_product_in_blocks_is_accepted_with_room(k: int) -> None:
    p, total = Product(k), torch.zeros(96, 96)
    for start in range(0, k, 32):
        total += p.a[:, start : start + 32] @ p.b[start : start + 32]
    found = p.compare(total)
    assert found.ok
    assert found.relL2_eps is not None
    assert found.bound is not None
    assert found.relL2_eps < found.bound[0] / 10


def test_a_strictly_sequential_product_is_accepted() -> None:
    p, total = Product(4096), torch.zeros(96, 96)
    for k in range(4096):
        total += p.a[:, k : k + 1] * p.b[k]
    assert p.compare(total).ok


@pytest.mark.parametrize(
    ("name", "narrow"),
    [("tf32", ten_bits), ("fp16", torch.Tensor.half), ("bf16", torch.Tensor.bfloat16)],
)
@pytest.mark.parametrize("k", [64, 4096])
def test_narrower_operands_of_a_float32_product_are_refused_by_far(name: str, narrow, k: int) -> None:
    p = Product(k)
    found = p.compare(narrow(p.a).double() @ narrow(p.b).double())
    assert found.status == "INCORRECT_NUMERICAL"
    assert found.relL2_eps is not None
    assert found.bound is not None
    assert found.relL2_eps > 40 * found.bound[0]


def test_a_task_that_allows_tf32_accepts_it_and_still_refuses_bfloat16() -> None:
    p = Product(1024)
    assert p.compare(ten_bits(p.a).double() @ ten_bits(p.b).double(), TF32).ok
    assert not p.compare(p.a.bfloat16().double() @ p.b.bfloat16().double(), TF32).ok


def test_sums_kept_in_float16_are_refused_and_sums_in_float32_accepted() -> None:
    a, b = noise(96, 4096, seed=1).half(), noise(4096, 96, seed=2).half()
    exact = a.double() @ b.double()
    eager = (a.float() @ b.float()).half()
    wide, narrow = torch.zeros(96, 96), torch.zeros(96, 96, dtype=torch.half)
    for k in range(0, 4096, 32):
        part = a[:, k : k + 32].float() @ b[k : k + 32].float()
        wide += part
        narrow += part.half()
    assert compare(wide.half(), exact, eager).ok
    assert compare(narrow, exact, eager).status == "INCORRECT_NUMERICAL"


def test_a_sequential_running_sum_is_accepted() -> None:
    x = noise(32, 4000)
    steps, total = [], torch.zeros(32)
    for i in range(4000):
        total = total + x[:, i]
        steps.append(total)
    assert compare(torch.stack(steps, 1), x.double().cumsum(1), x.cumsum(1)).ok


@pytest.mark.parametrize(("mean", "accepted"), [(0, True), (10, True), (100, False)])
def test_layer_norm_in_one_pass_is_accepted_until_it_is_unstable(mean: int, accepted: bool) -> None:
    x = noise(64, 1024) + mean
    exact, eager = F.layer_norm(x.double(), (1024,)), F.layer_norm(x, (1024,))
    average = x.mean(1, keepdim=True)
    variance = (x * x).mean(1, keepdim=True) - average * average
    assert compare((x - average) * (variance + 1e-5).rsqrt(), exact, eager).ok is accepted


def test_softmax_by_powers_of_two_is_accepted_and_in_float16_refused() -> None:
    x = noise(64, 1024)
    exact, eager = x.double().softmax(1), x.softmax(1)
    y = x * 1.4426950408889634
    y = torch.exp2(y - y.max(1, keepdim=True).values)
    assert compare(y / y.sum(1, keepdim=True), exact, eager).ok
    assert not compare(x.half().softmax(1).float(), exact, eager).ok


def test_zeros_for_a_softmax_over_very_many_columns_are_refused() -> None:
    x = noise(2, 1 << 16)
    zeros = torch.zeros_like(x)
    assert not compare(zeros, x.double().softmax(1), x.softmax(1)).ok
    assert kb_compat(zeros, x.softmax(1), 1e-2)  # what this rule is for


def test_the_tanh_form_of_gelu_is_refused() -> None:
    x = noise(64, 1024)
    assert not compare(F.gelu(x, approximate="tanh"), F.gelu(x.double()), F.gelu(x)).ok


@given(st.integers(0, 2**31), st.sampled_from([torch.float32, torch.float16, torch.bfloat16, torch.float64]))
def test_eager_itself_and_the_oracle_rounded_are_always_accepted(seed: int, dtype: torch.dtype) -> None:
    x = noise(7, 33, seed=seed).to(dtype)
    exact = torch.sin(x.double() * 3)
    eager = torch.sin(x * 3)
    assert compare(eager, exact, eager).ok
    assert compare(exact.to(dtype), exact, eager).ok


@given(st.integers(0, 2**31), st.integers(0, 7 * 33 - 1))
def test_one_wrong_element_is_refused_and_named(seed: int, place: int) -> None:
    x = noise(7, 33, seed=seed)
    wrong = x.clone()
    wrong.view(-1)[place] += 0.01
    found = compare(wrong, x.double(), x)
    assert found.status == "INCORRECT_NUMERICAL"
    assert found.worst["index"] == [place // 33, place % 33]
    assert found.worst["got"] == pytest.approx(wrong.view(-1)[place].item())


def test_an_error_in_a_later_piece_is_found_where_it_is() -> None:
    x = noise(CHUNK + 1000)
    wrong = x.clone()
    wrong[CHUNK + 500] = 9
    assert compare(wrong, x.double(), x).worst["index"] == [CHUNK + 500]
    assert exactly(x).ok


@pytest.mark.parametrize(
    ("candidate", "status"),
    [
        (torch.zeros(4, 4).tolist(), "INCORRECT_DTYPE"),
        (torch.zeros(4, 4, dtype=torch.float64), "INCORRECT_DTYPE"),
        (torch.zeros(4, 4, dtype=torch.complex64), "INCORRECT_DTYPE"),
        (torch.zeros(4, 4).to_sparse(), "INCORRECT_DTYPE"),
        (torch.zeros(4, 4, device="meta"), "INCORRECT_DTYPE"),
        (torch.zeros(4), "INCORRECT_SHAPE"),
        (torch.zeros(1, 4, 4), "INCORRECT_SHAPE"),
        (torch.zeros(0), "INCORRECT_SHAPE"),
    ],
)
def test_the_form_comes_before_the_numbers(candidate: object, status: str) -> None:
    zeros = torch.zeros(4, 4)
    assert compare(candidate, zeros.double(), zeros).status == status


def test_a_tensor_of_a_class_of_its_own_is_no_tensor() -> None:
    class Lazy(torch.Tensor):
        pass

    x = noise(4)
    assert compare(x.as_subclass(Lazy), x.double(), x).status == "INCORRECT_DTYPE"
    assert compare(torch.nn.Parameter(x), x.double(), x).ok


def test_another_order_of_storage_is_no_difference() -> None:
    x = noise(4, 6)
    assert compare(x.t().contiguous().t(), x.double(), x).ok


def test_nan_is_right_only_where_the_reference_has_it() -> None:
    x = noise(8)
    with_nan = x.clone()
    with_nan[3] = math.nan
    found = compare(with_nan, x.double(), x)
    assert found.status == "NONFINITE"
    assert found.worst == {"index": [3], "expected": pytest.approx(x[3].item()), "got": "nan"}
    assert compare(with_nan, with_nan.double(), with_nan).ok
    assert compare(x, with_nan.double(), with_nan).status == "NONFINITE"
    json.dumps(found.worst, allow_nan=False)


def test_the_sign_of_an_infinity_matters() -> None:
    x = torch.tensor([math.inf, 1.0])
    assert compare(-x, x.double(), x).status == "NONFINITE"
    assert compare(x, x.double(), x).ok


def test_wrong_numbers_beside_a_right_infinity_are_refused() -> None:
    x = torch.tensor([math.inf, 1.0, 2.0])
    assert compare(torch.tensor([math.inf, 1.0, 2.1]), x.double(), x).status == "INCORRECT_NUMERICAL"


def test_what_overflows_in_eager_may_overflow_or_be_right() -> None:
    exact = torch.tensor([60000.0, 2.0], dtype=torch.float64)
    eager = torch.tensor([math.inf, 2.0], dtype=torch.half)  # a square on the way was too large
    assert compare(eager, exact, eager).ok
    assert compare(exact.half(), exact, eager).ok
    assert not compare(torch.tensor([100.0, 2.0], dtype=torch.half), exact, eager).ok
    assert compare(torch.tensor([math.nan, 2.0], dtype=torch.half), exact, eager).status == "NONFINITE"


def test_a_result_beyond_the_range_of_the_type_is_an_infinity() -> None:
    exact, eager = (
        torch.tensor([1e6, 2.0], dtype=torch.float64),
        torch.tensor([math.inf, 2.0], dtype=torch.half),
    )
    assert compare(torch.tensor([math.inf, 2.0], dtype=torch.half), exact, eager).ok
    assert compare(torch.tensor([65504.0, 2.0], dtype=torch.half), exact, eager).status == "NONFINITE"


def test_integers_are_exact_and_a_tie_may_go_either_way() -> None:
    exact, eager = torch.tensor([1, 2, 3]), torch.tensor([1, 2, 4])
    assert compare(exact.clone(), exact, eager).ok
    assert compare(eager.clone(), exact, eager).ok
    found = compare(torch.tensor([1, 3, 3]), exact, eager)
    assert found.status == "INCORRECT_NUMERICAL"
    assert found.worst == {"index": [1], "expected": 2, "got": 3}
    truth = torch.tensor([True, False])
    assert compare(truth, truth, truth).ok
    assert not compare(~truth, truth, truth).ok


def test_a_reference_of_zeros_wants_zeros() -> None:
    zeros = torch.zeros(16)
    assert exactly(zeros).ok
    assert not compare(torch.full((16,), 1e-6), zeros.double(), zeros).ok
    nearly = torch.full((16,), 1e-7)  # eager itself is not exact
    assert compare(torch.full((16,), 3e-7), zeros.double(), nearly).ok
    assert not compare(torch.full((16,), 1e-5), zeros.double(), nearly).ok


def test_numbers_too_small_to_be_normal_may_be_flushed() -> None:
    tiny = torch.full((16,), 1e-39)
    assert compare(torch.zeros(16), tiny.double(), tiny).ok
    half = torch.full((16,), 3e-5, dtype=torch.half)
    assert not compare(torch.zeros(16, dtype=torch.half), half.double(), half).ok


def test_huge_numbers_do_not_make_the_norm_overflow() -> None:
    x = torch.full((16,), 1e300, dtype=torch.float64)
    assert exactly(x).ok
    found = compare(x * 1.1, x, x)
    assert found.status == "INCORRECT_NUMERICAL"
    json.dumps(found.__dict__, allow_nan=False)


def test_empty_outputs_agree() -> None:
    assert exactly(torch.zeros(0, 4)).ok


def test_complex_numbers_are_compared_by_both_parts() -> None:
    x = torch.complex(noise(32), noise(32, seed=1))
    exact = x.to(torch.complex128)
    assert compare(x, exact, x).ok
    assert not compare(x.conj().resolve_conj(), exact, x).ok


def test_float8_outputs_are_compared() -> None:
    x = noise(256).to(torch.float8_e4m3fn)
    assert compare(x, x.double(), x).ok
    assert not compare((x.float() * 2).to(torch.float8_e4m3fn), x.double(), x).ok


def test_scalars_are_judged_over_several_seeds_together() -> None:
    def rows(change):
        values = [torch.tensor(v) for v in (0.5, -0.25, 0.125, 1.0)]
        return [(change(v), v.double(), v) for v in values]

    assert compare_scalars(rows(torch.clone)).ok
    assert not compare_scalars(rows(lambda v: v if v != 1.0 else v * 1.001)).ok
    assert compare_scalars(rows(lambda v: v.reshape(1))).status == "INCORRECT_SHAPE"
    assert is_scalar(torch.zeros(()))
    assert not is_scalar(torch.zeros(4))


def test_kernelbench_compatibility_is_allclose_with_the_shape_and_type() -> None:
    x = noise(16)
    assert kb_compat(x + 5e-3, x, 1e-2)
    assert not kb_compat(x + 5e-3, x, 1e-4)
    assert not kb_compat(x[:1], x, 1e-2)
    assert not kb_compat(x.double(), x, 1e-2)
    assert not kb_compat(torch.full((16,), math.nan), torch.full((16,), math.nan), 1e-2)


def test_inputs_that_cannot_tell_right_from_wrong_are_known() -> None:
    x = noise(16)
    assert judgeable(x.double(), x) == ""
    assert "not finite" in judgeable(torch.full((16,), math.inf, dtype=torch.float64), x)
    assert "overflows" in judgeable(x.double(), torch.full((16,), math.inf))
    assert judgeable(x.double(), x, x.double() * (1 + 1e-7)) == ""
    assert "one rounding" in judgeable(x.double(), x, x.double() * 1.001)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_it_works_where_the_tensors_are() -> None:
    x = noise(4, CHUNK // 2).cuda()
    assert exactly(x).ok
    wrong = x.clone()
    wrong[3, 7] += 1
    assert compare(wrong, x.double(), x).worst["index"] == [3, 7]
    assert compare(x.cpu(), x.double(), x).status == "INCORRECT_DTYPE"


# ------------------------------------------------------------------------------------------- slice by slice


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_slice_that_is_small_beside_the_rest_may_not_be_zeros(dtype: torch.dtype, axis: int) -> None:
    exact = noise(6, 7, 8).double()
    exact.select(axis, 3).mul_(1e-6)
    eager = exact.to(dtype)
    wrong = eager.clone()
    wrong.select(axis, 3).zero_()
    assert compare(wrong, exact, eager).ok
    assert lost_slice(wrong, exact, eager).startswith(f"index 3 of axis {axis} is off by 100%")
    assert lost_slice(eager, exact, eager) == ""


def test_a_slice_whose_digits_eager_has_lost_too_says_nothing() -> None:
    large = noise(64, 64)
    exact = large.double().clone()
    exact[5] = 1e-9
    eager, candidate = (
        exact.float() + torch.where(torch.arange(64)[:, None] == 5, 1e-7, 0.0) * noise(64, 64, seed=seed)
        for seed in (1, 2)
    )
    assert lost_slice(candidate, exact, eager) == ""


@given(st.integers(0, 1000), st.sampled_from([torch.float32, torch.float16, torch.bfloat16]))
def test_products_in_other_orders_lose_no_slice(seed: int, dtype: torch.dtype) -> None:
    a, b = noise(24, 96, seed=seed).to(dtype), noise(96, 16, seed=seed + 1).to(dtype)
    b[:, 3] *= 1e-4
    exact = a.double() @ b.double()
    in_halves = (a[:, :48].float() @ b[:48].float() + a[:, 48:].float() @ b[48:].float()).to(dtype)
    assert lost_slice(in_halves, exact, a @ b) == ""


def test_cancellation_in_a_result_that_is_small_beside_the_tasks_is_fragile_and_a_lost_result_is_wrong() -> (
    None
):
    """`tanh` by `(1 - exp(-2x)) / (1 + exp(-2x))`, for numbers a million times as small as the task's own."""
    small = 1e-6 * torch.randn(600, generator=torch.Generator().manual_seed(1))
    power = torch.exp(-2 * small)
    exact = small.double().tanh()
    answer = Answer(Outputs([exact], ["output"], "t"), Outputs([exact.float()], ["output"], "t"))

    def wrong(result: torch.Tensor) -> bool:
        return gross(Returned(Outputs([result], ["output"], "t"), "", {}, 0.0), answer, [0.7], "x1e-3")

    assert not wrong((1 - power) / (1 + power))
    assert wrong(torch.zeros(600))
    assert wrong(exact.float() * 1.5)


def test_the_worst_of_many_rounding_errors_may_be_worse_and_the_whole_may_not() -> None:
    """Four partial sums that are rounded to half precision one after another, as by a split product with atomics."""
    generator = torch.Generator().manual_seed(3)
    parts = torch.randn(4, 1 << 21, generator=generator, dtype=torch.float64)
    exact = parts.sum(0)
    rounded = torch.zeros(1 << 21, dtype=torch.float16)
    for part in parts:
        rounded = (rounded.float() + part.half().float()).half()
    found = compare(rounded, exact, exact.half())
    assert found.ok, found.detail
    assert found.bound is not None
    assert found.bound[1] > 6.5 > compare(rounded[:1024], exact[:1024], exact[:1024].half()).bound[1]
    assert not compare((rounded.float() * 1.002).half(), exact, exact.half()).ok
    spoiled = rounded.clone()
    spoiled[77] += 0.02
    assert not compare(spoiled, exact, exact.half()).ok


def _ties(got: torch.Tensor, exact: torch.Tensor, others: list[torch.Tensor]) -> bool:
    def outputs(leaf: torch.Tensor) -> Outputs:
        return Outputs([leaf], ["output"], "tensor")

    answer = Answer(outputs(exact.double() if exact.is_floating_point() else exact), outputs(exact))
    returned = Returned(outputs(got), "", {}, 0.0)
    return right_but_for_ties(
        returned, answer, Policy(), lambda number: outputs(others[number % len(others)])
    )


def test_an_element_is_right_at_a_tie_and_nowhere_else() -> None:
    exact = torch.randint(-100, 100, (1000,), dtype=torch.int8)
    tied, elsewhere, jumps = exact.clone(), exact.clone(), exact.clone()
    tied[7] += 1
    elsewhere[8] += 1
    jumps[7] += 1
    assert _ties(tied, exact, [exact, jumps])
    assert not _ties(elsewhere, exact, [exact, jumps])
    assert not _ties(torch.where(torch.arange(1000) < 50, exact + 1, exact), exact, [exact + 1])  # too many
    signs, flipped = torch.ones(1000), torch.ones(1000)
    flipped[3] = -1
    assert _ties(flipped, signs, [signs, flipped])
    assert not _ties(flipped, signs, [signs])
    assert not _ties(flipped * 1.5, signs, [signs, flipped])


def test_other_roundings_that_give_another_number_of_elements_say_nothing() -> None:
    exact, wrong = torch.arange(1000), torch.arange(1000)
    wrong[5] = 99
    assert not _ties(wrong, exact, [exact[:-1]])
