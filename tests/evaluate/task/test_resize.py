"""A candidate's own sizes are found, in the ways that sizes are written, and nothing else is touched."""

import ast
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmill.evaluate.task import shrink
from kernelmill.evaluate.task.resize import has_old_shape, keeps_powers_of_two, resized

SIZES = {4096: 512, 100: 20, 48: 16}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("n = 4096", "n = 512"),
        ("n = 1 << 12", "n = 512"),
        ("n = 64 * 64", "n = 512"),
        ("n = 32 * 4096  # rows * columns", "n = 16384  # rows * columns"),
        ("n = 131072", "n = 16384"),
        ("n = 4096 * 100", "n = 51200"),
        ("é = (4096, 100)", "é = (512, 20)"),
        ("f(x, BLOCK=4096)[(48,)]", "f(x, BLOCK=512)[(16,)]"),
        ("scale = 0.015625", "scale = 0.04419417382415922"),
        ("scale = 0.01", "scale = 0.05"),
        ("x = 4096.0", "x = 512.0"),
        ("n = x.shape[1]\nm = 4096 // x", "n = x.shape[1]\nm = 512 // x"),
    ],
)
def test_a_size_is_rewritten_however_it_is_written(before: str, after: str) -> None:
    assert resized(before, SIZES) == after


@pytest.mark.parametrize(
    "code",
    ["n = 128", "n = 96", "s = '4096'", "s = f'{4096}'", "n = x.shape[0]", "n = 4096j", "b = True", ""],
)
def test_what_is_no_size_is_left_alone(code: str) -> None:
    assert resized(code, SIZES) is None


def test_without_changed_sizes_there_is_nothing_to_rewrite() -> None:
    assert resized("n = 4096", {}) is None


@given(st.lists(st.sampled_from([4096, 100, 48, 7, 2]), min_size=1, max_size=6))
def test_the_result_is_python_with_the_same_structure(numbers: list[int]) -> None:
    code = f"def f(x):\n    return x + sum([{', '.join(map(str, numbers))}])\n"
    new = resized(code, SIZES)
    expected = [SIZES.get(number, number) for number in numbers]
    assert (new is None) == (expected == numbers)
    if new is not None:
        assert ast.literal_eval(new[new.index("[") : new.index("]") + 1]) == expected


def test_a_block_that_would_not_stay_a_power_of_two_is_seen() -> None:
    assert keeps_powers_of_two("n = 4096", {4096: 512})
    assert not keeps_powers_of_two("n = 4096", {4096: 384})
    assert keeps_powers_of_two("n = 100", {4096: 384})


@pytest.mark.parametrize(
    "code",
    [
        "n = " + "+".join(["1"] * 300),
        "n = " + "**".join(["9"] * 300),
        "n = ((9**63)**63)**63",
        "n = 1 << 63 << 63 << 63",
    ],
)
def test_arithmetic_that_grows_is_given_up_before_its_numbers_do(
    monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    bits: list[int] = []

    def watched(compute: Callable[[int, int], int]) -> Callable[[int, int], int]:
        def counted(left: int, right: int) -> int:
            value = compute(left, right)
            bits.append(value.bit_length())
            return value

        return counted

    known = {kind: watched(compute) for kind, compute in shrink._OPERATORS.items()}
    monkeypatch.setattr(shrink, "_OPERATORS", known)
    assert resized(code, SIZES) is None
    assert max(bits) < 64 * 64
    assert len(bits) < 10 * len(code), "each number is computed a few times, however deep it stands"


@pytest.mark.parametrize(
    ("error", "old"),
    [
        ("shape (2, 64, 8, 24), expected (2, 24, 8, 24)", True),
        ("output[0]: shape (48, 192), expected (48, 72)", True),
        ("shape (2, 64, 8, 24), expected (2, 24, 8, 12)", False),
        ("shape (2, 64), expected (2, 24, 8)", False),
        ("shape (2, 24), expected (2, 24)", False),
        ("shape (1,), expected (24,)", False),
        ("relL2 3 eps", False),
    ],
)
def test_a_result_of_the_shape_that_the_task_had_before_it_was_shrunk_is_known(error: str, old: bool) -> None:
    assert has_old_shape(error, {64: 24, 1024: 16}) is old
