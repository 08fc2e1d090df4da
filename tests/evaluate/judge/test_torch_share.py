"""Whose work it is: products weigh what they weigh at full size, whatever the size they were run at."""

import functools
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelmill.evaluate.judge.torch_share import FULL_SIZE, torch_share, who_computed
from kernelmill.evaluate.judge.torch_work import TorchWork, TorchWorkCounter

SMALL = torch.randn(32, 48), torch.randn(40, 48), torch.randn(40)


def _work(do: Any) -> TorchWork:
    with TorchWorkCounter() as recorder:
        do(*SMALL)
    return recorder.work


@functools.cache
def reference() -> TorchWork:
    return _work(lambda x, w, b: torch.relu(torch.nn.functional.linear(x, w, b)))


LARGEST = 40 * 48


def _share(do: Any) -> float:
    return torch_share(_work(do).to_dict(), reference(), LARGEST)


def test_the_product_is_nearly_all_of_a_small_task_too() -> None:
    assert _share(lambda x, w, b: x @ w.t()) > 0.9
    assert _share(lambda x, w, b: torch.addmm(b, x[:, :-1], w[:, :-1].t())) > 0.9


def test_what_is_done_beside_the_product_is_little() -> None:
    assert 0 < _share(lambda x, w, b: torch.relu_(torch.zeros(32, 40))) < 0.1
    assert _share(lambda x, w, b: torch.zeros(32, 40).add_(b).relu_()) < 0.1


def test_a_product_by_broadcasting_is_work_as_well() -> None:
    assert _share(lambda x, w, b: (x[:, None, :] * w[None]).sum(-1)) == 1.0


def test_weights_folded_in_each_call_do_not_outweigh_the_product() -> None:
    assert _share(lambda x, w, b: (w * b[:, None]).contiguous()) < 0.2


def test_a_task_without_products_is_weighed_as_it_is() -> None:
    reference = _work(lambda x, w, b: torch.softmax(x, -1) * 2)
    half = _work(lambda x, w, b: x * 2)
    assert torch_share(half.to_dict(), reference, 32 * 48) == pytest.approx(0.5)


def test_the_last_operation_being_torchs_does_not_make_all_of_it_torchs() -> None:
    with TorchWorkCounter() as counter:
        own = torch.relu_(torch.ones(32, 40))
    counter.look_for([own])
    assert who_computed(counter.work.to_dict(), reference(), 32 * 48, LARGEST) == ""


@pytest.mark.parametrize("change", [lambda t: t.clone(), lambda t: 3 * t, lambda t: t[:, :20].clone()])
def test_a_copy_a_multiple_and_a_part_of_what_torch_has_computed_is_torchs(change: Any) -> None:
    with TorchWorkCounter() as counter:
        result = torch.randn(32, 40).sigmoid()
    counter.look_for([change(result)])
    assert "copied" in who_computed(counter.work.to_dict(), reference(), 32 * 48, LARGEST)


@given(st.integers(1, 4 * FULL_SIZE), st.floats(0, 4), st.floats(0, 4))
def test_a_share_is_between_nothing_and_all_and_grows_with_torchs_work(
    largest: int, heavy: float, light: float
) -> None:
    def share(h: float, lt: float) -> float:
        kinds = {"matmul": h * reference().kinds["matmul"], "elementwise": lt * 1e-9}
        return torch_share({"kinds": kinds}, reference(), largest)

    assert 0 <= share(heavy, light) <= 1
    assert share(heavy, light) <= share(heavy + 0.1, light) + 1e-9
    assert share(heavy, light) <= share(heavy, light + 0.1) + 1e-9
