"""The judge's own clock beside the candidate's events, with time that passes by hand."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmill.evaluate.gpu.wall_clock import MOST_S, by_the_judge, clocks_agree

CALLS = 40
LOOP_S, ASKING_S = 30e-6, 2e-3
"""What a call takes beside its events, and a block in another process beside its calls."""


class Time:
    now = 0.0

    def block(
        self, takes: float, says: float, asking: float = 0.0, pauses: tuple[float, ...] = ()
    ) -> Callable[[int], list[float]]:
        """Calls that take so long and say that they took so long, in seconds; the first blocks have a pause each."""
        rest = chain(pauses, repeat(0.0))

        def run(size: int) -> list[float]:
            self.now += size * (LOOP_S + takes) + asking + next(rest)
            return [says * 1e6] * size

        return run

    def wall(
        self,
        takes: float,
        says: float,
        pauses: tuple[float, ...] = (),
        eagers: tuple[float, ...] = (),
        claimed: float | None = None,
    ) -> dict[str, float]:
        return by_the_judge(
            self.block(20e-6, 20e-6, pauses=eagers),
            self.block(takes, says, ASKING_S, pauses),
            CALLS,
            lambda: 1e6 * (says if claimed is None else claimed),
            lambda: self.now,
        )


@pytest.mark.parametrize("takes", [5e-6, 20e-6, 400e-6, 5e-3])
def test_the_clocks_agree_about_an_honest_kernel_at_once(takes: float) -> None:
    time = Time()
    assert clocks_agree(time.wall(takes, takes))
    assert time.now < 6 * CALLS * (takes + 1e-4) + 4 * ASKING_S, "it is timed twice"


@given(
    pauses=st.lists(st.floats(0, 0.1), max_size=4),
    eagers=st.lists(st.floats(0, 0.1), max_size=4),
    takes=st.floats(5e-6, 1e-3),
)
def test_pauses_of_a_busy_machine_do_not_speak_against_an_honest_kernel(
    pauses: list[float], eagers: list[float], takes: float
) -> None:
    assert clocks_agree(Time().wall(takes, takes, tuple(pauses), tuple(eagers)))


@given(pauses=st.lists(st.floats(0, 0.1), max_size=30), eagers=st.lists(st.floats(0, 0.1), max_size=2))
def test_who_says_less_than_it_takes_is_noticed_whatever_it_does_beside(
    pauses: list[float], eagers: list[float]
) -> None:
    """Also where it is slow at times, so that other blocks look fast beside these."""
    wall = Time().wall(1e-3, 20e-6, tuple(pauses), tuple(eagers))
    assert not clocks_agree(wall)
    assert wall["candidate"] >= 800


def test_who_is_slow_in_short_blocks_so_that_long_ones_look_fast_is_noticed() -> None:
    """Each block takes as long as the longest."""
    time = Time()
    wall = by_the_judge(
        time.block(20e-6, 20e-6),
        lambda size: time.block(1e-3, 20e-6)(CALLS)[:size],
        CALLS,
        lambda: 20.0,
        lambda: time.now,
    )
    assert not clocks_agree(wall)
    assert wall["candidate"] >= 800


def test_who_says_the_truth_only_while_the_judge_looks_is_noticed() -> None:
    wall = Time().wall(400e-6, 400e-6, claimed=20e-6)
    assert not clocks_agree(wall)
    assert wall["events"] == pytest.approx(20)


def test_it_ends_where_the_clocks_never_agree() -> None:
    time = Time()
    time.wall(400e-6, 20e-6)
    assert time.now < 2 * MOST_S
