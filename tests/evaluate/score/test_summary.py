"""The summary adds up, does not depend on the order of rows, and does not grow with their number."""

from __future__ import annotations

import gc
import random
import statistics
import tracemalloc
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelmill.evaluate.score.summary import WIDTH, Median, Summary, render
from kernelmill.evaluate.verdict import Flag, Verdict
from tests.evaluate.verdicts import timed, untimed, verdicts

unhurried = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


def rows_of(*verdicts: Verdict) -> list[dict[str, Any]]:
    return [verdict.to_dict() for verdict in verdicts]


def line_of(text: str, start: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.strip().startswith(start)]
    return line.split()


@unhurried
@given(st.lists(verdicts(), max_size=4), st.permutations(range(4)))
def test_counts_add_up_in_any_order_and_the_text_is_narrow(found: list[Verdict], order: list[int]) -> None:
    rows = rows_of(*found)
    summary = Summary(rows)
    assert summary.rows == sum(summary.verdicts.values()) == sum(summary.statuses.values()) == len(rows)
    assert summary.fast["fast_0"] == summary.verdicts["correct"]
    assert (
        summary.fast["fast_0"] >= summary.fast["fast_1"] >= summary.fast["fast_1.5"] >= summary.fast["fast_2"]
    )
    text = render(summary)
    assert all(len(line) <= WIDTH and line == line.rstrip() for line in text.split("\n"))
    assert all(letter.isprintable() or letter == "\n" for letter in text)
    assert render(Summary(rows[i] for i in order if i < len(rows))) == text


def test_the_table_says_what_was_counted() -> None:
    flag = Flag("A3.identity_copy", "hard")
    found = [
        *[timed(2.5)] * 4,
        *[timed(1.2)] * 3,
        untimed(),
        Verdict("x", "HACK", "interpreter", flags=[flag, flag, Flag("E9.hidden", "hard")]),
        Verdict("x", "HACK", "interpreter", flags=[flag]),
        Verdict("x", "INCORRECT_NUMERICAL", "gpu", cost={"wall_s": 2.0}),
        Verdict("x", "UNSUPPORTED", "interpreter"),
    ]
    text = render(Summary(rows_of(*found), seconds=120.0))
    assert text.startswith("12 rows in 2 min 0 s (6.0 a minute); tier: gpu_timed 7, interpreter 4, gpu 1")
    assert line_of(text, "correct ") == ["correct", "8", "66.7%"]
    assert line_of(text, "hack") == ["hack", "2", "16.7%"]
    assert line_of(text, "inconclusive") == ["inconclusive", "1", "8.3%"]
    assert line_of(text, "INCORRECT_NUMERICAL") == ["INCORRECT_NUMERICAL", "1", "8.3%"]
    assert line_of(text, "A3.identity_copy") == ["A3.identity_copy", "hard", "2", "16.7%"]
    assert line_of(text, "fast_0") == ["fast_0", "8", "66.7%"]
    assert line_of(text, "fast_1 ") == ["fast_1", "7", "58.3%"]
    assert line_of(text, "fast_2") == ["fast_2", "4", "33.3%"]
    assert "1 correct rows were not timed" in text
    assert line_of(text, "median speed-up")[-1] == "2.5"
    assert line_of(text, "median cost")[-2:] == ["2", "s"]
    columns = {len(line) for line in text.splitlines() if line.endswith("%")}
    assert len(columns) == 1


def test_without_a_time_no_fast_p_is_made_up() -> None:
    text = render(Summary(rows_of(untimed(), untimed())))
    assert line_of(text, "fast_0") == ["fast_0", "2", "100.0%"]
    assert line_of(text, "fast_1 ") == ["fast_1", "not", "timed"]
    assert "median" not in text
    assert "a minute" not in text


def test_no_rows_are_no_table() -> None:
    assert render(Summary()) == "no rows"


def test_a_bad_row_is_not_counted_but_refused() -> None:
    summary = Summary()
    with pytest.raises(ValueError, match="schema"):
        summary.add({"status": "PASSED"})
    assert summary.rows == 0


@unhurried
@given(st.lists(st.floats(1e-6, 1e9), min_size=1, max_size=50))
def test_the_median_is_right_to_half_a_percent(values: list[float]) -> None:
    median = Median()
    for value in values:
        median.add(value)
    assert median.value == pytest.approx(statistics.median_low(values), rel=0.0051)


@pytest.mark.heavy
def test_memory_does_not_grow_with_the_rows() -> None:
    chance = random.Random(1)

    row = timed().to_dict()

    def held(rows: int) -> int:
        tracemalloc.start()
        summary = Summary()
        for _ in range(rows):
            row["perf"]["speedup"] = chance.lognormvariate(0, 1)
            row["flags"] = [{"code": f"Z{chance.randrange(10**9)}.x", "severity": "soft", "evidence": {}}]
            summary.add(row)
        gc.collect()  # what only waits to be collected is not held
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        return size

    held(1_500)
    assert held(6_000) < 2 * held(1_500)
