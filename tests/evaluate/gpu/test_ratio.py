"""Ratios of times: the interval is as wide as the noise, and no wider than it must be."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from kernelmill.evaluate.gpu.ratio import pair_ratios, ratio, spread


def blocks(dice: random.Random, level: float, pairs: int, drift: list[float]) -> list[list[float]]:
    """Times around a level, with a tail as launches have, and what drifts from block to block."""
    return [
        [level * d * (1 + abs(dice.gauss(0, 0.01)) + (0.5 if dice.random() < 0.03 else 0)) for _ in range(15)]
        for d in drift[:pairs]
    ]


def test_the_interval_of_a_kernel_against_itself_holds_one_though_clocks_drift() -> None:
    dice = random.Random(1)
    held = 0
    for _ in range(300):
        drift = [1 + 0.2 * dice.random() for _ in range(8)]
        found = ratio(blocks(dice, 50.0, 8, drift), blocks(dice, 50.0, 8, drift))
        held += found.low <= 1.0 <= found.high
    assert held >= 285


def test_a_slow_down_of_a_twentieth_is_found() -> None:
    dice = random.Random(2)
    found = 0
    for _ in range(100):
        drift = [1 + 0.2 * dice.random() for _ in range(8)]
        found += ratio(blocks(dice, 50.0, 8, drift), blocks(dice, 52.5, 8, drift)).high < 1.0
    assert found >= 95


def test_blocks_that_something_disturbed_do_not_hide_a_slow_down() -> None:
    dice = random.Random(3)
    found = held = 0
    for _ in range(100):
        drift = [1 + 0.2 * dice.random() for _ in range(16)]
        pairs = [blocks(dice, level, 16, drift) for level in (50.0, 52.5, 50.0)]
        for side in pairs:
            for block in dice.sample(side, 1):
                block[:] = [t * (1.2 + dice.random()) for t in block]
        found += ratio(pairs[0], pairs[1]).high < 1.0
        same = ratio(pairs[0], pairs[2])
        held += same.low <= 1.0 <= same.high
    assert found >= 95
    assert held >= 93


def test_what_processes_differ_by_is_part_of_the_interval_however_many_blocks_there_are() -> None:
    same = [[50.0] * 5] * 40
    assert ratio(same, same).high == 1.0
    found = ratio(same, same, between=0.01)
    assert (found.low, found.high) == (0.99, 1.01)


times = st.lists(st.lists(st.floats(1, 1e4), min_size=3, max_size=5), min_size=2, max_size=6)


@given(times, st.floats(0.1, 10))
def test_the_value_lies_in_its_interval_and_scales_with_the_times(
    base: list[list[float]], factor: float
) -> None:
    candidate = [[t * factor for t in block] for block in base]
    found = ratio(base, candidate)
    assert found.low <= found.value <= found.high
    assert abs(found.value * factor - 1) < 1e-6
    assert spread(pair_ratios(base, candidate)) < 1e-6
