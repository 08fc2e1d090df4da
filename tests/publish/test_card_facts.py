from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from kernelmill.publish.card.facts import MOST_VALUES, OTHERS, CardCounts
from kernelmill.store import open_source
from tests.conftest import evals_row


def counted(*rows: dict[str, Any]) -> CardCounts:
    counts = CardCounts()
    for row in rows:
        counts.add(pa.RecordBatch.from_pylist([row]))
    return counts


def test_everything_the_card_tells_of_rows_is_counted() -> None:
    verdict = {"env": {"evaluator": "1.2", "gpu": "H200"}}
    counts = counted(
        evals_row(1, 2.5, difficulty="low", rater="static", licenses=["MIT", "Apache-2.0"], verdict=verdict),
        evals_row(2, None, difficulty="high", rater="llm:m", task="other"),
        evals_row(1, 1, difficulty="low", rater="static", licenses=["MIT"]),
    )
    assert (counts.rows, counts.modules, list(counts.rewards)) == (3, 2, [2.5, 1.0])
    assert counts.difficulties == {"low": 2, "high": 1}
    assert counts.raters == {"static": 2, "llm:m": 1}
    assert counts.tasks == {"kernelbook": 2, "other": 1}
    assert (counts.licences, counts.with_licences) == ({"MIT": 2, "Apache-2.0": 1}, 2)
    assert (counts.evaluators, counts.devices) == ({"1.2": 1}, {"H200": 1})


def test_lengths_are_characters_of_all_messages_with_the_thoughts() -> None:
    counts = counted(
        {"prompt": "né", "completion": [{"role": "assistant", "content": "abc", "reasoning": "de"}, {"content": None}]},
        {"prompt": [{"content": "1234"}, {"content": "5"}], "completion": [{"content": "<think>a</think>b"}]},
        {"completion": [{"content": "plain"}]},
        {"code": "no messages"},
    )  # fmt: skip
    assert list(counts.prompt_chars) == [2, 5]
    assert list(counts.completion_chars) == [5, 17, 5]
    assert counts.with_thoughts == 2


def test_a_module_is_named_by_its_row_or_its_info_as_object_or_text() -> None:
    info = {"module_name": "Net", "python_code": "pass"}
    assert counted({"module_name": "Net"}, {"info": info}, {"info": json.dumps(info)}).modules == 1
    assert counted({"info": "not json"}, {"info": 3}, {"module_name": 4}, {}).modules == 0


@pytest.mark.parametrize("value", [7, True, [1], {"a": 1}, "text", [["x"]], [{"content": 5}], [None]])
def test_columns_of_other_types_than_ours_stop_nothing(value: Any) -> None:
    names = ("reward", "difficulty", "rater", "writer", "task", "info", "module_name", "licenses", "prompt")
    counts = counted(dict.fromkeys((*names, "completion", "verdict"), value))
    assert counts.rows == 1
    assert list(counts.rewards) == ([7.0] if value == 7 else [])


def test_a_column_with_a_new_name_in_every_row_does_not_fill_the_memory() -> None:
    counts = counted(*({"task": f"task {n}"} for n in range(MOST_VALUES + 50)), {"task": "task 0"})
    assert len(counts.tasks) == MOST_VALUES + 1
    assert (counts.tasks[OTHERS], counts.tasks["task 0"]) == (50, 2)


def test_the_bundled_rows_are_counted() -> None:
    counts = CardCounts()
    for row in open_source("bundled:samples/evals.jsonl").rows():
        counts.add(pa.RecordBatch.from_pylist([json.loads(row.raw)]))
    assert (counts.rows, len(counts.rewards), counts.with_licences) == (60, 60, 0)
    assert counts.modules == 29  # thirty modules, of which two are called Block
