"""Other inputs: in the role of the task's own, different where they shall be, the same for the same seed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from kernelmill.evaluate.admit.cases import Case, Questions, Skipped  # noqa: E402
from kernelmill.evaluate.task.generators import (  # noqa: E402
    DISTRIBUTIONS,
    NUDGE,
    distribution,
    noncontiguous,
    nudged,
    other_weights,
    settle_signs,
)
from kernelmill.evaluate.task.reference import load_reference  # noqa: E402
from kernelmill.evaluate.task.roles import Role, roles  # noqa: E402
from kernelmill.evaluate.task.values import Call  # noqa: E402


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def draws(make, n: int = 4) -> list[Call]:
    return [Call([make(generator(seed))]) for seed in range(n)]


def role_of(make) -> Role:
    return roles(draws(make))[0]


def made(name: str, make, seed: int = 0) -> torch.Tensor | None:
    own = draws(make)
    call = distribution(name, own[0], roles(own), generator(seed))
    return None if call is None else call.args[0]


def normal(g: torch.Generator) -> torch.Tensor:
    return torch.randn(4, 64, generator=g)


def uniform(g: torch.Generator) -> torch.Tensor:
    return torch.rand(4, 64, generator=g)


def index(g: torch.Generator) -> torch.Tensor:
    return torch.randint(3, 20, (4, 64), generator=g)


def mask(g: torch.Generator) -> torch.Tensor:
    return torch.ones(4, 64, dtype=torch.bool)


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (normal, "data"),
        (uniform, "data"),
        (index, "index"),
        (mask, "mask"),
        (lambda g: uniform(g).round(), "mask"),
        (lambda g: uniform(g).softmax(-1), "probability"),
        (lambda g: torch.arange(4) * 3, "fixed"),
        (lambda g: torch.full((4,), float("-inf")), "fixed"),
        (lambda g: torch.zeros(0), "fixed"),
        (lambda g: torch.complex(normal(g), normal(g)), "other"),
    ],
)
def test_the_role_is_told_from_the_values(make, kind: str) -> None:
    assert role_of(make).kind == kind


def test_the_range_of_an_index_is_that_of_all_draws() -> None:
    role = role_of(index)
    assert (role.low, role.high) == (3, 19)


def test_values_that_are_no_tensors_have_no_role_and_stay() -> None:
    call = Call([torch.randn(4), 3, "mean"], {"eps": 0.5})
    found = roles([call, call])
    assert [role.path for role in found] == ["args[0]"]
    changed = distribution("x100", call, found, generator())
    assert changed is not None
    assert changed.args[1:] == [3, "mean"]
    assert changed.kwargs == {"eps": 0.5}


@given(st.sampled_from(DISTRIBUTIONS), st.integers(0, 2**62), st.sampled_from([normal, uniform, index, mask]))
def test_form_and_determinism_hold_for_every_distribution(name: str, seed: int, make) -> None:
    own = make(generator(0))
    one, same = made(name, make, seed), made(name, make, seed)
    if one is None:
        assert same is None
        return
    assert same is not None
    assert torch.equal(one, same)
    assert (one.shape, one.dtype) == (own.shape, own.dtype)


@given(st.sampled_from(["lines", "suffix", "indices"]), st.integers(0, 2**62))
def test_an_index_stays_in_its_range(name: str, seed: int) -> None:
    found = made(name, index, seed)
    assert found is not None
    assert int(found.min()) >= 3
    assert int(found.max()) <= 19


@given(st.integers(0, 2**62))
def test_indices_hold_both_ends_and_repeats(seed: int) -> None:
    found = made("indices", index, seed)
    assert found is not None
    assert {3, 19} <= set(found.flatten().tolist())
    assert found.flatten().bincount().max() >= found.numel() // 4


@given(st.integers(0, 2**62))
def test_a_mask_is_open_somewhere_in_each_row_and_closed_somewhere(seed: int) -> None:
    found = made("masks", mask, seed)
    assert found is not None
    assert found.any(-1).all()
    assert not found.all()


def test_lines_change_one_line_in_256_and_at_least_one() -> None:
    def make(g: torch.Generator) -> torch.Tensor:
        return torch.randn(512, 64, generator=g)

    old, new = make(generator(0)), made("lines", make)
    assert new is not None
    changed = (old != new).flatten().view(-1, 32)
    assert int(changed.any(1).sum()) == 512 * 64 // 32 // 256
    assert bool((changed.any(1) == changed.all(1)).all())
    small = made("lines", lambda g: torch.randn(3, generator=g))
    assert small is not None
    assert not torch.equal(small, torch.randn(3, generator=generator(0)))


def test_a_suffix_leaves_the_beginning_alone() -> None:
    old, new = normal(generator(0)).flatten(), made("suffix", normal)
    assert new is not None
    assert torch.equal(old[:240], new.flatten()[:240])
    assert bool((old[240:] != new.flatten()[240:]).all())


def test_what_is_said_is_done() -> None:
    own = normal(generator(0))
    expected = {
        "own": own,
        "x4": own * 4,
        "x8": own * 8,
        "x100": own * 100,
        "negated": -own,
        "constant_rows": own[:, :1].expand(4, 64),
        "sorted": own.sort(-1).values,
        "half_x64": torch.cat([own[:2], own[2:] * 64]),
    }
    for name, values in expected.items():
        found = made(name, normal)
        assert found is not None
        assert torch.allclose(found, values), name
    zero_mean = made("zero_mean", uniform)
    assert zero_mean is not None
    assert abs(float(zero_mean.mean())) < 0.3
    outlier = made("outlier", normal)
    assert outlier is not None
    assert int((outlier != own).sum()) == 1
    assert float(outlier.abs().max()) > 1000


def test_distributions_of_data_leave_the_other_roles_alone() -> None:
    for make in (index, mask, lambda g: uniform(g).softmax(-1)):
        for name in (
            "zero_mean",
            "x100",
            "x1e-3",
            "negated",
            "half_x64",
            "constant_rows",
            "sorted",
            "outlier",
        ):
            assert made(name, make) is None
    assert made("masks", normal) is None
    assert made("indices", normal) is None


NOT_OF_DATA = ("masks", "closed_rows", "indices", "wide_integers", "ignored", "fewer")


@pytest.mark.parametrize("name", [name for name in DISTRIBUTIONS if name not in NOT_OF_DATA])
def test_what_all_draws_have_in_common_is_kept(name: str) -> None:
    def square(g: torch.Generator) -> torch.Tensor:
        return torch.randn(16, 16, generator=g)

    def symmetric(g: torch.Generator) -> torch.Tensor:
        x = square(g)
        return x + x.t()

    triangle = made(name, lambda g: square(g).tril())
    assert triangle is not None
    assert torch.equal(triangle, triangle.tril())
    mirrored = made(name, symmetric)
    assert mirrored is not None
    assert torch.equal(mirrored, mirrored.t())
    ordered = made(name, lambda g: square(g).sort(-1).values)
    assert ordered is not None
    assert bool((ordered.diff(dim=-1) >= 0).all())


def test_inputs_that_may_not_be_negative_are_found_one_by_one() -> None:
    calls = [Call([uniform(generator(i)), uniform(generator(i + 9))]) for i in range(4)]
    found = roles(calls)
    settle_signs(calls[0], found, generator(), lambda call: bool(call.args[1].log().isfinite().all()))
    assert [role.signed for role in found] == [True, False]
    changed = distribution("zero_mean", calls[0], found, generator())
    assert changed is not None
    assert bool((changed.args[0] < 0).any())
    assert torch.equal(changed.args[1], calls[0].args[1])


def test_other_storage_holds_the_same_values() -> None:
    call = Call([torch.randn(4, 6), torch.randn(5), torch.randn(2, 1), torch.tensor(3.0)])
    changed = noncontiguous(call)
    assert changed is not None
    assert all(torch.equal(a, b) for a, b in zip(call.tensors(), changed.tensors(), strict=True))
    assert [t.is_contiguous() for t in changed.tensors()] == [False, False, False, True]
    assert noncontiguous(Call([torch.tensor(3.0)])) is None


def test_other_weights_move_every_parameter_also_those_of_zeros() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8))
    torch.nn.init.zeros_(model[0].bias)
    state = other_weights(model, generator())
    assert set(state) == set(model.state_dict()) - {"1.num_batches_tracked"}
    for name, tensor in state.items():
        assert not torch.equal(tensor, model.state_dict()[name]), name
    assert float(state["0.bias"].abs().max()) > 0
    assert float(state["1.running_var"].min()) > 0


# --------------------------------------------------------------------------------------------------------- cases


def questions(forward: str, inputs: str = "torch.rand(4, 64)", init: str = "pass") -> Questions:
    reference = load_reference(
        "import torch\nclass Model(torch.nn.Module):\n"
        f"    def __init__(self):\n        super().__init__()\n        {init}\n"
        f"    def forward(self, x):\n        return {forward}\ndef get_inputs():\n    return [{inputs}]\n"
    )
    return Questions(reference, reference.new(0), 0)


def test_every_question_of_a_plain_task_is_put() -> None:
    found = {
        case.name: case for case in questions("self.w(x)", init="self.w = torch.nn.Linear(64, 4)").all(7)
    }
    skipped = {name for name, case in found.items() if isinstance(case, Skipped)}
    assert skipped == set(NOT_OF_DATA)
    assert set(found) == {*DISTRIBUTIONS[1:], "weights"}


def test_a_question_that_makes_the_reference_infinite_or_raise_is_not_put() -> None:
    asked = questions("torch.exp(x)").other("x100", 0)
    assert isinstance(asked, Skipped)
    assert "overflows" in asked.reason
    asked = questions("torch.exp(torch.exp(x))").other("x100", 0)
    assert isinstance(asked, Skipped)
    assert "not finite" in asked.reason
    loss = "torch.nn.functional.binary_cross_entropy(x, x)"
    asked = questions(loss).other("x100", 0)
    assert isinstance(asked, Skipped)
    assert "refuses" in asked.reason


def test_softmax_of_wide_inputs_is_a_good_question() -> None:
    assert isinstance(questions("torch.softmax(x, -1)").other("x100", 0), Case)


def test_a_normalisation_of_constant_rows_is_a_bad_question() -> None:
    asked = questions("torch.nn.functional.layer_norm(x, (64,), eps=1e-12)").other("constant_rows", 0)
    assert isinstance(asked, Skipped)
    assert "one rounding" in asked.reason or "away" in asked.reason


def test_data_under_a_logarithm_stays_positive() -> None:
    found = questions("torch.log(x + 0.1)")
    assert [role.signed for role in found.roles] == [False]
    assert isinstance(found.other("zero_mean", 0), Skipped)
    assert isinstance(found.other("x100", 0), Case)


def test_other_weights_give_another_answer() -> None:
    found = questions("self.w(x)", init="self.w = torch.nn.Linear(64, 4)")
    case = found.weights(3)
    assert isinstance(case, Case)
    old = found.reference.run(found.model, case.call).leaves[0]
    assert not torch.allclose(case.answer.eager.leaves[0], old)


def test_a_nudge_moves_every_number_a_little_and_no_index() -> None:
    calls = [Call([normal(generator(n)), index(generator(n))], {}) for n in range(3)]
    found = roles(calls)
    moved = nudged(calls[0], found, generator(9))
    before, after = calls[0].args[0], moved.args[0]
    assert bool((before != after).float().mean() > 0.9)
    assert torch.allclose(after, before, rtol=1.01 * NUDGE, atol=0)
    assert torch.equal(calls[0].args[1], moved.args[1])


# ------------------------------------------------------------------------------- values that real data has


def test_half_of_the_numbers_may_be_exact_zeros_and_most_may_be_equal() -> None:
    own, zeros, ties, shifted = (made(name, normal) for name in ("own", "zeros", "ties", "shifted"))
    assert 0.3 < float((zeros == 0).float().mean()) < 0.7
    assert torch.equal(zeros[zeros != 0], own[zeros != 0])
    assert ties.unique().numel() == 8
    assert float((ties - own).abs().max()) <= float(own.max() - own.min()) / 14 * 1.001
    assert torch.allclose(shifted, own + 4 * own.std())


def slots(g: torch.Generator) -> torch.Tensor:
    return torch.randperm(200, generator=g)[:60]


def targets(g: torch.Generator) -> torch.Tensor:
    found = torch.randint(0, 50, (64,), generator=g)
    found[::5] = -100
    return found


def test_indices_of_which_none_occurs_twice_stay_so() -> None:
    assert role_of(slots).unique
    assert not role_of(index).unique
    for name in ("indices", "suffix", "lines"):
        for seed in range(5):
            found = made(name, slots, seed)
            assert found is not None
            assert found.unique().numel() == 60
            assert 0 <= int(found.min()) <= int(found.max()) < 200


def test_few_indices_of_many_are_unique_by_chance_and_may_be_equal() -> None:
    def few(g: torch.Generator) -> torch.Tensor:
        return torch.randint(0, 30_000, (8,), generator=g)

    assert not role_of(few).unique


def test_an_ignored_target_stays_the_only_negative_one() -> None:
    role = role_of(targets)
    assert (role.sentinel, role.low) == (-100, 0)
    for name in ("indices", "suffix", "lines"):
        found = made(name, targets)
        assert found is not None
        assert set(found[found < 0].tolist()) == {-100}
        assert torch.equal(found < 0, targets(generator(0)) < 0)


def test_negative_integers_that_are_many_are_ordinary_ones() -> None:
    assert role_of(lambda g: torch.randint(-50, 50, (64,), generator=g)).sentinel is None
