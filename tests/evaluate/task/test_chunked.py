"""Large tensors a chunk at a time: the same answers as on the whole, whatever the type, the shape and the strides."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from kernelmill.evaluate.judge import closeness  # noqa: E402
from kernelmill.evaluate.judge.tolerance import compare, judgeable, kb_compat  # noqa: E402
from kernelmill.evaluate.task import chunked, own_size  # noqa: E402

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
TYPES = [*FLOATS, torch.complex64, torch.int64, torch.int32, torch.uint8, torch.bool]
SHAPES: list[tuple[int, ...]] = [
    (),
    (0,),
    (1,),
    (7,),
    (64,),
    (3, 0, 2),
    (5, 13),
    (2, 3, 4, 5),
    (1, 40),
    (40, 1),
]
SPECIAL = (float("nan"), float("inf"), float("-inf"), 0.0, 1e-40)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked, "CHUNK", 6)


def tensor(shape: tuple[int, ...], dtype: Any, seed: int, special: int = 0, strided: bool = False) -> Any:
    dice = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point or dtype.is_complex:
        made = torch.randn(shape, generator=dice, dtype=torch.float64).to(dtype)
    else:
        made = torch.randint(0, 2 if dtype == torch.bool else 9, shape, generator=dice).to(dtype)
    if made.is_floating_point() and made.numel():
        for _ in range(special):
            place = int(torch.randint(made.numel(), (1,), generator=dice))
            made.view(-1)[place] = SPECIAL[int(torch.randint(len(SPECIAL), (1,), generator=dice))]
    if strided and made.dim() > 1:
        return made.transpose(0, -1).contiguous().transpose(0, -1)
    return made


CASES = st.tuples(
    st.sampled_from(SHAPES), st.sampled_from(TYPES), st.integers(0, 9999), st.integers(0, 3), st.booleans()
)


def whole_and_in_pieces(ask: Any) -> tuple[Any, Any]:
    kept = chunked.CHUNK
    try:
        found = []
        for size in (1 << 30, 6):
            chunked.CHUNK = size
            found.append(ask())
        return found[0], found[1]
    finally:
        chunked.CHUNK = kept


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return a == b or math.isclose(a, b, rel_tol=1e-9) or (math.isnan(a) and math.isnan(b))
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


@given(CASES)
def test_pieces_are_the_whole_in_order(case: Any) -> None:
    x = tensor(*case)
    found = list(chunked.chunks(x, x.contiguous(), size=6))
    assert [start for start, _ in found] == sorted(start for start, _ in found)
    assert sum(a.numel() for _, (a, _) in found) == x.numel()
    assert all(a.numel() <= 6 for _, (a, _) in found)
    if found:
        flat = x.reshape(-1)
        assert all(
            chunked.identical(a.clone(), flat[start : start + a.numel()].clone()) for start, (a, _) in found
        )
        assert all(chunked.identical(a, b) for _, (a, b) in found)


@settings(deadline=None)
@given(CASES, st.booleans(), st.sampled_from([0.0, 1e-7, 1e-3, 1.0]))
def test_a_comparison_in_pieces_is_that_of_the_whole(case: Any, other: bool, off: float) -> None:
    shape, dtype, seed, special, strided = case
    eager = tensor(*case)
    candidate = tensor(shape, dtype, seed + other, special, False)
    if off and candidate.is_floating_point() and candidate.numel():
        candidate.view(-1)[-1] += off
    wide = {torch.complex64: torch.complex128}.get(dtype, torch.float64 if dtype in FLOATS else dtype)
    exact = tensor(shape, dtype, seed, special, strided).to(wide)
    whole, cut = whole_and_in_pieces(lambda: compare(candidate, exact, eager))
    for name in ("ok", "status", "relL2_eps", "elem_eps", "bound"):
        assert same(getattr(whole, name), getattr(cut, name)), (name, whole, cut)
    assert whole.worst.get("expected") is None or same(str(whole.worst["got"]), str(cut.worst["got"]))
    assert same(*whole_and_in_pieces(lambda: judgeable(exact, eager)))
    if dtype in FLOATS:
        assert same(*whole_and_in_pieces(lambda: kb_compat(candidate, eager, 1e-2)))


def bits_of(x: Any) -> list[int]:
    return list(x.contiguous().reshape(-1).view(torch.uint8).tolist()) if x.numel() else []


@given(CASES, CASES)
def test_identical_means_bit_for_bit(one: Any, two: Any) -> None:
    a, b = tensor(*one), tensor(*two)
    found = whole_and_in_pieces(lambda: chunked.identical(a, b))
    wanted = (a.shape, a.dtype) == (b.shape, b.dtype) and bits_of(a) == bits_of(b)
    assert found == (wanted, wanted)


def test_one_changed_bit_anywhere_is_seen(tiny: None) -> None:
    x = torch.randn(5, 9)
    for place in range(x.numel()):
        y = x.clone()
        bits = y.view(-1).view(torch.int32)
        bits[place] ^= 1
        assert not chunked.identical(x, y)
        assert not chunked.identical(x, y.t().contiguous().t())


@given(CASES)
def test_sizes_and_finiteness_are_those_of_the_whole(case: Any) -> None:
    x = tensor(*case)
    assert same(*whole_and_in_pieces(lambda: chunked.rms(x)))
    assert same(*whole_and_in_pieces(lambda: closeness.constant(x)))
    assert whole_and_in_pieces(lambda: chunked.all_finite(x)) == (bool(torch.isfinite(x).all()),) * 2


def test_a_change_of_each_number_is_made_in_pieces_and_of_any_type(tiny: None) -> None:
    x = torch.randn(4, 11, dtype=torch.float32)
    assert torch.equal(chunked.changed(x, lambda p: p.double() * 3), (x.double() * 3).float())
    assert torch.equal(chunked.changed(x.t(), lambda p: p.double() + 1, torch.float64), x.t().double() + 1)


LARGE = """
import torch
class Model(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.layer = torch.nn.Linear(n, n)
    def forward(self, x):
        return self.layer(x)
def get_inputs():
    return [torch.rand(1 << 20, 4096)]
def get_init_inputs():
    return [4096]
"""


def test_the_size_of_a_task_of_34_gb_is_told_without_making_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_size, "_SECONDS", 30.0)  # a first call imports much
    weights = 4 * (4096 * 4096 + 4096)
    assert own_size.own_size(LARGE, None).bytes == 2 * (4 << 20) * 4096 + weights


def test_a_task_whose_numbers_decide_has_no_size_beforehand() -> None:
    assert own_size.own_size(LARGE.replace("self.layer(x)", "x[: int(x.sum())]"), None) is None
