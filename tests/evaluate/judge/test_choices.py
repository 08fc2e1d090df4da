"""An index is right by the value at the place that it names, where several places have that value; else it is wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest
import torch

from kernelmill.evaluate.evaluator import Evaluator
from kernelmill.evaluate.judge.choices import compare_leaf
from kernelmill.evaluate.options import Options, Pair
from kernelmill.evaluate.task.reference import load_reference
from kernelmill.evaluate.task.values import Call, Outputs
from kernelmill.evaluate.verdict import Verdict

Answers = tuple[Outputs, Outputs]


def answers(forward: str, x: torch.Tensor) -> Answers:
    """The exact and the eager outputs of a reference with this body."""
    code = (
        "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        "
        f"{forward}\ndef get_inputs():\n    return [torch.rand(2, 2)]\n"
    )
    reference = load_reference(code)
    found = reference.answer(reference.new(0), Call([x]))
    assert not found.note
    return found.exact, found.eager


TIED = torch.tensor([[3.0, 1.0, 3.0, 2.0, 3.0], [0.0, 0.0, 0.0, 0.0, 5.0]])
FIRST_OF_TIED = "return torch.topk(x, 3, -1)[1]"
ROWS: dict[str, tuple[str, list[list[int]], list[list[int]]]] = {
    # body of the reference, indices that are right, indices of which the first is wrong
    "top-k": (FIRST_OF_TIED, [[4, 2, 0], [4, 3, 1]], [[3, 2, 0], [4, 1, 2]]),
    "the same place twice": (FIRST_OF_TIED, [[2, 4, 0], [4, 0, 3]], [[2, 2, 0], [4, 1, 2]]),
    "a place that is not there": (FIRST_OF_TIED, [[2, 4, 0], [4, 0, 3]], [[5, 2, 0], [4, 1, 2]]),
    "a place counted from the end": (FIRST_OF_TIED, [[2, 4, 0], [4, 0, 3]], [[-1, 2, 0], [4, 1, 2]]),
    "sort": ("return torch.sort(x)[1]", [[1, 3, 4, 0, 2], [3, 2, 1, 0, 4]], [[3, 1, 0, 2, 4], [0, 1, 2, 3, 4]]),
    "argsort of another type": (
        "return torch.argsort(x).to(torch.int32)",
        [[1, 3, 4, 0, 2], [3, 2, 1, 0, 4]],
        [[3, 1, 0, 2, 4], [0, 1, 2, 3, 4]],
    ),
    "argmax that keeps its axis": ("return x.argmax(-1, keepdim=True)", [[4], [4]], [[1], [4]]),
    "the least of each row": ("return x.min(-1, keepdim=True)[1]", [[1], [3]], [[0], [3]]),
    "of what was computed": (
        "return torch.topk(torch.softmax(x * 1000, -1), 3)[1]",
        [[2, 0, 4], [4, 1, 3]],
        [[1, 0, 4], [4, 1, 3]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_of_equal_values_any_may_be_chosen_and_no_other(name: str) -> None:
    forward, right, wrong = ROWS[name]
    exact, eager = answers(forward, TIED)
    kind = eager.leaves[0].dtype
    good = compare_leaf(torch.tensor(right, dtype=kind), exact, eager, 0)
    assert good.ok, good.detail
    bad = compare_leaf(torch.tensor(wrong, dtype=kind), exact, eager, 0)
    assert not bad.ok
    assert bad.status == "INCORRECT_NUMERICAL"
    assert bad.worst["index"][0] == 0
    assert "indices name places with other values" in bad.detail


def test_another_axis_and_another_shape_of_the_indices_make_no_difference() -> None:
    exact, eager = answers("return torch.topk(x, 2, 0)[1].reshape(-1)", TIED.T.contiguous())
    assert compare_leaf(torch.tensor([4, 4, 2, 0]), exact, eager, 0).ok
    assert not compare_leaf(torch.tensor([4, 4, 4, 0]), exact, eager, 0).ok
    exact, eager = answers("return x.argmax()", TIED.T)
    assert eager.leaves[0].item() == 9
    assert not compare_leaf(torch.tensor(4), exact, eager, 0).ok
    exact, eager = answers("return x.argmin()", TIED)
    for place in range(10):
        assert compare_leaf(torch.tensor(place), exact, eager, 0).ok == (5 <= place < 9)


EXACTLY: dict[str, str] = {
    "a stable sort": "return torch.sort(x, stable=True)[1]",
    "what was written to after the choice": "x = x * 1; i = x.topk(3)[1]; x.zero_(); return i",
    "an index that is computed further": "return x.topk(3)[1] + 1",
    "a count": "return (x > 0).sum(-1)",
    "pooling": "return torch.nn.functional.max_pool1d(x.relu(), 2, 1, return_indices=True)[1]",
}


@pytest.mark.parametrize("name", EXACTLY)
def test_where_nothing_is_known_of_the_choice_or_it_has_one_answer_indices_are_exact(name: str) -> None:
    exact, eager = answers(EXACTLY[name], TIED)
    right = eager.leaves[0]
    assert compare_leaf(right.clone(), exact, eager, 0).ok
    assert not compare_leaf(right.flip(-1), exact, eager, 0).ok


def test_values_that_nothing_has_rounded_are_equal_only_if_they_are_the_same() -> None:
    x = torch.tensor([[1.0, 1.0 + 2**-23, 0.5]])
    exact, eager = answers("return x.argmax(-1)", x)
    assert not compare_leaf(torch.tensor([0]), exact, eager, 0).ok
    exact, eager = answers("return (x / 3 * 3.3).argmax(-1)", x)
    assert compare_leaf(torch.tensor([0]), exact, eager, 0).ok
    assert not compare_leaf(torch.tensor([2]), exact, eager, 0).ok


ROUTER = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k = k

    def forward(self, logits):
        weights, experts = torch.topk(torch.softmax(logits, dim=-1), self.k, dim=-1)
        return weights, experts

def get_inputs():
    return [torch.randn(6, 16)]

def get_init_inputs():
    return [3]
"""
KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def route(x_ptr, w_ptr, i_ptr, n, K: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    p = e / tl.sum(e, axis=0)
    p = tl.where(cols < n, p, -1.0)
    for j in range(K):
        best = tl.max(p, axis=0)
        where = CHOICE
        tl.store(w_ptr + row * K + j, best)
        tl.store(i_ptr + row * K + j, where.to(tl.int64))
        p = tl.where(cols == where, -1.0, p)


class ModelNew(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k = k

    def forward(self, logits):
        logits = logits.contiguous()
        rows, n = logits.shape
        weights = torch.empty(rows, self.k, device=logits.device)
        experts = torch.empty(rows, self.k, device=logits.device, dtype=torch.int64)
        route[(rows,)](logits, weights, experts, n, K=self.k, BLOCK=triton.next_power_of_2(n))
        return weights, experts
"""
LAST = "tl.max(tl.where(p == best, cols, -1), axis=0)"
"""The last of equals, where torch takes the first."""
HOSTILE: dict[str, str] = {
    "places without regard to the values": "j + 0 * tl.max(cols, axis=0)",
    "the next place": f"({LAST} + 1) % n",
    "right but for the last rank": f"tl.where(j == K - 1, tl.max(tl.where(p == tl.min(tl.where(p < 0, 2.0, p), axis=0), cols, -1), axis=0), {LAST})",
    "right where there are no ties, else a place out of range": f"tl.where(tl.sum((p == best).to(tl.int32), axis=0) > 1, n, {LAST})",
    "right where there are no ties, else the greatest again": f"tl.where(tl.sum((p == best).to(tl.int32), axis=0) > 1, tl.max(tl.where(x == tl.max(x, axis=0), cols, -1), axis=0), {LAST})",
}  # fmt: skip


@pytest.fixture(scope="module")
def judge() -> Iterator[Callable[[str], Verdict]]:
    with Evaluator(Options(device="cpu", seed=20_250_117, targets=()), workers=1) as evaluator:

        def judged(choice: str) -> Verdict:
            return asyncio.run(evaluator.evaluate(Pair("1", ROUTER, KERNEL.replace("CHOICE", choice))))

        yield judged


def test_a_router_may_take_other_experts_where_the_softmax_underflows(
    judge: Callable[[str], Verdict],
) -> None:
    verdict = judge(LAST)
    assert verdict.verdict == "correct", (verdict.status, verdict.error)
    checks = {check.name: check for check in verdict.checks}
    assert checks["distribution:x100"].result == "pass"
    assert verdict.grade.robust is True


@pytest.mark.parametrize("how", HOSTILE)
def test_a_router_that_names_wrong_experts_is_caught(judge: Callable[[str], Verdict], how: str) -> None:
    verdict = judge(HOSTILE[how])
    assert verdict.verdict in ("incorrect", "hack"), [c.name for c in verdict.checks if c.result == "fail"]
