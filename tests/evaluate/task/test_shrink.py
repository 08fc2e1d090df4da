"""Smaller and odd versions of a source, and the choice among them."""

from __future__ import annotations

import ast
import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from kernelmill.evaluate.task.fit_size import (  # noqa: E402
    SMALL,
    Picked,
    SizeLimits,
    pick,
    pick_each,
    pick_other,
    room_for,
)
from kernelmill.evaluate.task.reference import BadReference  # noqa: E402
from kernelmill.evaluate.task.shrink import TARGETS, _related, one_at_a_time, other_shapes, shrunk, value_of  # noqa: E402


def source(constants: str, inputs: str, init: str = "[]", forward: str = "x * 2", build: str = "pass") -> str:
    return (
        "import torch\nimport torch.nn as nn\nclass Model(nn.Module):\n    def __init__(self, *a):\n"
        f"        super().__init__()\n        {build}\n    def forward(self, x, *y):\n        return {forward}\n"
        f"{constants}\ndef get_inputs():\n    return {inputs}\ndef get_init_inputs():\n    return {init}\n"
    )


ATTENTION = source(
    "batch_size = 64\nseq_len, width = 2048, 768\nheads = 12\n",
    "[torch.randn(batch_size, seq_len, width)]",
    "[width, heads]",
    "self.mix(x, x, x)[0]",
    "self.mix = nn.MultiheadAttention(a[0], a[1], batch_first=True)",
)
PRODUCT = source(
    "M = 1024 * 4\nK = 2**13\nN = 4096\n", "[torch.rand(M, K), torch.rand(K, N)]", forward="x @ y[0]"
)
BOOK = source("", "[torch.rand([4, 4, 4, 4]), torch.rand([4, 4, 4, 4])]", "[[], {}]", "x + y[0]")


def test_the_original_comes_first_and_is_untouched() -> None:
    first = shrunk(ATTENTION)[0]
    assert (first.text, first.kind, first.changes) == (ATTENTION, "original", {})


def test_a_small_problem_is_taken_as_it_is() -> None:
    assert pick(BOOK, None).version.kind == "original"


def test_only_digits_change() -> None:
    code = source("batch_size = 128  # rows, übrigens\nn = (512,\n     256)", "[torch.rand(batch_size, *n)]")
    for version in shrunk(code)[1:]:
        assert version.text.count("\n") == code.count("\n")
        assert "# rows, übrigens" in version.text
        ast.parse(version.text)


def test_heads_still_divide_the_width_and_different_sizes_stay_different() -> None:
    changes = pick(ATTENTION, None).version.changes
    assert changes["batch_size"] == [64, 2]
    width, length = changes["width"][1], changes["seq_len"][1]
    assert width % 12 == 0
    assert width != length
    assert "heads" not in changes


def test_arithmetic_is_one_number_and_equal_sizes_stay_equal() -> None:
    found = pick(PRODUCT, None)
    assert found.version.changes["M"][0] == 4096
    assert found.version.changes["M"][1] == found.version.changes["N"][1]
    assert found.version.changes["K"][1] != found.version.changes["M"][1]
    assert "M = " + str(found.version.changes["M"][1]) in found.version.text


def test_what_is_computed_from_constants_follows_them() -> None:
    code = source("dim = 4096\nshape = (dim, dim // 2)\n", "[torch.rand(shape)]")
    found = pick(code, None)
    rows, columns = found.reference.inputs(0).args[0].shape
    assert rows == 2 * columns
    assert set(found.version.changes) == {"dim"}


def test_a_batch_that_must_equal_another_size_is_kept_equal() -> None:
    code = source(
        "batch_size = 32768\nn = 32768\n",
        "[torch.rand(batch_size, n), torch.rand(n)]",
        forward="x * y[0][:, None]",
    )
    changes = pick(code, None).version.changes
    assert changes["batch_size"][1] == changes["n"][1]


def test_literals_in_get_inputs_are_sizes_too() -> None:
    code = source(
        "", "[torch.rand(256, 3, 224, 224)]", forward="self.c(x)", build="self.c = nn.Conv2d(3, 8, 3)"
    )
    found = pick(code, None)
    assert found.reference.inputs(0).args[0].shape[1] == 3
    assert found.size.elements <= SMALL.elements


def test_a_problem_of_many_gigabytes_is_never_allocated() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    code = source("batch_size = 4096\ndim = 2**21\n", "[torch.rand(batch_size, dim)]")
    found = pick(code, None)
    assert found.version.kind == "shrunk"
    assert "elements of a new tensor" in found.refused[0]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


def test_small_inputs_that_grow_on_the_way_are_stopped() -> None:
    code = source("n = 1000\n", "[torch.rand(n)]", forward="(x[:, None, None] * x[:, None] * x).sum()")
    found = pick(code, None)
    assert found.version.kind == "shrunk"
    assert "intermediate" in found.refused[0]


def test_too_much_work_and_too_much_time_are_stopped() -> None:
    code = source("n = 200\n", "[torch.rand(n, n)]", forward="x @ x")
    assert "operations in products" in pick(code, None).refused[0]
    slow = source("n = 20\n", "[torch.rand(n)]", forward="[x := x + 1 for _ in range(10**7)][-1]")
    with pytest.raises(BadReference, match="seconds"):
        pick(slow, None, SizeLimits(seconds=0.1), SizeLimits(seconds=0.1))


def test_weights_that_do_not_shrink_are_taken_under_the_ceiling() -> None:
    code = source(
        "batch_size = 512\n",
        "[torch.rand(batch_size, 700)]",
        forward="self.w(x)",
        build="self.w = nn.Linear(700, 700)",
    )
    found = pick(code, None)
    assert found.size.elements > SMALL.elements
    assert found.version.changes["batch_size"][1] == 2


def test_a_size_at_which_the_result_is_rounding_is_passed_over() -> None:
    norm = "(lambda z: (z - z.mean(0)) / (z.var(0, unbiased=False) + 1e-30).sqrt())(x - x + x[:2].mean(0) + (x - x.mean(0)) * 1e-9)"
    code = source("batch_size = 1000\ndim = 1024\n", "[torch.rand(batch_size, dim)]", forward=norm)
    assert pick(code, None).size.distance > 0.01  # there is no better one, so it is taken
    small = source(
        "batch_size = 1000\ndim = 1024\n",
        "[torch.rand(batch_size, dim)]",
        forward=f"x if len(x) > 2 else {norm}",
    )
    assert pick(small, None).version.changes["batch_size"][1] > 2


def test_a_source_that_never_runs_says_the_first_reason() -> None:
    with pytest.raises(BadReference, match="original: forward"):
        pick(source("n = 8\n", "[torch.rand(n)]", forward="x.no_such_thing()"), None)


@pytest.mark.parametrize("code", ["def f(:", "x = 1\0", "-" * 100_000 + "1"])
def test_a_text_that_does_not_parse_is_a_bad_reference(code: str) -> None:
    with pytest.raises(BadReference, match="no Python"):
        pick(code, None)


@given(st.lists(st.integers(2, 5000), min_size=1, max_size=6), st.sampled_from(TARGETS))
def test_new_sizes_are_no_larger_and_as_different_and_as_odd(values: list[int], target: int) -> None:
    new = _related(values, target)
    assert set(new) == set(values)
    for value, small in new.items():
        assert 1 < small <= value
        assert small % 2 >= value % 2
    large = [new[v] for v in new if new[v] < v]
    assert len(set(large)) == len(large)


# --------------------------------------------------------------------------------------------------- other shapes


def other_shape(code: str, same_model: bool = True, limits: SizeLimits = SMALL) -> Picked | None:
    picked = pick(code, None, limits)
    return pick_other(picked.version.text, None, room_for(picked.size), same_model)


def test_equal_axes_become_different_ones_in_all_inputs_alike() -> None:
    found = other_shape(BOOK)
    assert found is not None
    assert found.version.same_model
    one, other = found.reference.inputs(0).args
    assert one.shape == other.shape
    assert len(set(one.shape)) == 4


def test_an_axis_that_weights_depend_on_is_left_alone_with_the_same_model() -> None:
    code = source(
        "", "[torch.rand([4, 4, 4, 4])]", "[[], {}]", "self.c(x)", "self.c = nn.Conv2d(4, 4, 3, padding=1)"
    )
    found = other_shape(code)
    assert found is not None
    shape = found.reference.inputs(0).args[0].shape
    assert shape[1] == 4
    assert 4 not in (shape[0], shape[2], shape[3])


def test_constants_become_odd_and_those_of_the_constructor_only_when_asked() -> None:
    code = source(
        "batch_size = 2\nfeatures = 64\nlength = 32\nkernel_size = 5\n",
        "[torch.rand(batch_size, features, length)]",
        "[features, kernel_size]",
        "self.c(x)",
        "self.c = nn.Conv1d(a[0], a[0], a[1])",
    )
    same, other = other_shape(code), other_shape(code, same_model=False)
    assert same is not None
    assert other is not None
    assert same.version.changes == {"batch_size": [2, 3], "length": [32, 33]}
    assert other.version.changes["features"][1] % 2 == 1
    assert "kernel_size" not in other.version.changes


def test_what_was_picked_at_the_limit_has_another_shape() -> None:
    for limit in (1024, 1 << 22):
        code = source("batch_size = 256\nn = 5000\n", "[torch.rand(batch_size, n)]")
        assert other_shape(code, limits=SizeLimits(limit)) is not None


def test_odd_sizes_become_other_odd_sizes() -> None:
    found = other_shape(source("m = 69\nn = 64\n", "[torch.rand(m, n)]"))
    assert found is not None
    assert found.version.changes == {"m": [69, 71], "n": [64, 65]}


def test_there_may_be_no_other_shape() -> None:
    assert other_shapes(source("", "[torch.rand(3)]")) == []
    assert other_shape(source("n = 8\n", "[torch.rand(n)]", forward="x.view(2, 4)")) is None


# ------------------------------------------------------------------------------------------------ one size at a time


def test_each_axis_of_the_inputs_is_changed_alone() -> None:
    code = source("", "[torch.rand(2, 50, 32), torch.rand(2, 50, 32)]", forward="torch.cat([x, x])")
    versions = [version for version in one_at_a_time(code) if version.axis >= 0]
    assert [version.axis for version in versions] == [0, 1, 2]
    assert [version.told() for version in versions] == [
        "axis 0 of the inputs, 2 to 3",
        "axis 1 of the inputs, 50 to 51",
        "axis 2 of the inputs, 32 to 33",
    ]
    assert all(len(version.changes) == 2 for version in versions)


def test_a_size_that_the_constructor_shares_is_changed_in_both_places() -> None:
    code = source(
        "",
        "[torch.rand(24, 64)]",
        "[64, 48]",
        "self.c(x)",
        "self.c = nn.Linear(a[0], a[1])",
    )
    found = {picked.version.told() for picked in pick_each(code, None)}
    assert found == {"axis 0 of the inputs, 24 to 25", "64 to 65", "48 to 49"}


def test_named_sizes_are_told_by_name_and_each_is_changed_once() -> None:
    code = source("rows = 24\nwidth = 64\n", "[torch.rand(rows, width)]")
    found = [picked.version for picked in pick_each(code, None)]
    assert [version.told() for version in found] == ["rows 24 to 25", "width 64 to 65"]
    assert all(len(version.changes) == 1 for version in found)


def test_sizes_that_the_reference_refuses_are_left_out() -> None:
    code = source("rows = 24\nwidth = 64\n", "[torch.rand(rows, width)]", forward="x.view(-1, 64)")
    assert [picked.version.told() for picked in pick_each(code, None)] == ["rows 24 to 25"]
    assert pick_each(source("n = 8\n", "[torch.rand(n)]", forward="x.view(2, 4)"), None) == []


@pytest.mark.parametrize(
    ("text", "value"),
    [("4096", 4096), ("2**14", 16384), ("1 << 12", 4096), ("3 * (4 + 5)", 27), ("7 // 0", None), ("n", None)],
)
def test_arithmetic_on_literals_has_a_value(text: str, value: int | None) -> None:
    assert value_of(ast.parse(text, mode="eval").body) == value


@pytest.mark.parametrize("text", ["+".join(["1"] * 50), "((9**63)**63)**63", "2**63"])
def test_numbers_that_are_no_sizes_have_none(text: str) -> None:
    assert value_of(ast.parse(text, mode="eval").body) is None
