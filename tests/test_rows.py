from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmill.errors import BadRow
from kernelmill.rows import EvalsReader, Row, with_columns
from tests.conftest import evals_row

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=12,
)  # fmt: skip


def read(row: Any) -> Any:
    raw = row if isinstance(row, bytes) else json.dumps(row).encode()
    return EvalsReader()(Row(0, "rows.jsonl:7", raw))


@given(st.dictionaries(st.text(max_size=12), json_values, max_size=6), st.text())
def test_added_columns_leave_every_other_value_as_it_was(row: dict[str, Any], evaluation: str) -> None:
    columns = {"difficulty": "low", "evaluation_raw": evaluation}
    out = json.loads(with_columns(json.dumps(row, ensure_ascii=False).encode(), columns))
    assert out == {**row, **columns}
    assert list(out)[-2:] == ["difficulty", "evaluation_raw"]


def test_a_row_is_spliced_not_rewritten() -> None:
    raw = b'{"a": 1.50,  "big": 123456789012345678901234567890, "e": 1e-7, "a": 2}'
    assert with_columns(raw, {"difficulty": "low"}) == raw[:-1] + b',"difficulty":"low"}'


def test_a_column_that_is_there_already_is_replaced_not_doubled() -> None:
    out = with_columns(b'{"difficulty": null, "x": 1.50}', {"difficulty": "high"})
    assert out == b'{"x":1.50,"difficulty":"high"}'


def test_an_empty_object_takes_columns() -> None:
    assert with_columns(b" { } ", {"a": 1}) == b'{"a":1}'


@pytest.mark.parametrize(
    ("change", "field", "problem"),
    [
        ({"reward": None}, "$.reward", "expected float, got null"),
        ({"reward": "0.9"}, "$.reward", "expected float, got str"),
        ({"example_id": "x"}, "$.example_id", "expected int, got str"),
        ({"info": {"module_name": "A"}}, "$.info.python_code", "the column is missing"),
        ({"info": '{"module_name": "A"}'}, "$.info", "the column is missing"),
        ({"completion": [{"content": "x"}]}, "$.completion[0].role", "the column is missing"),
    ],
)
def test_a_bad_value_names_the_place_the_field_and_what_was_expected(
    change: Any, field: str, problem: str
) -> None:
    with pytest.raises(BadRow) as caught:
        read(evals_row(1) | change)
    assert caught.value.where == "rows.jsonl:7"
    assert caught.value.field == field
    assert problem in caught.value.problem
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("column", ["example_id", "prompt", "completion", "reward", "info"])
def test_a_missing_column_is_named(column: str) -> None:
    row = evals_row(1)
    del row[column]
    with pytest.raises(BadRow, match=rf"\$\.{column}: the column is missing"):
        read(row)


@pytest.mark.parametrize(
    "raw", [b'{"a": 1', b"", b"nonsense", b"\xff\xfe", b'{"reward": NaN}', b"[" * 200_000, b"[1]", b"3"]
)
def test_what_is_not_an_object_is_a_bad_row(raw: bytes) -> None:
    with pytest.raises(BadRow):
        read(raw)


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_bad_row(raw: bytes) -> None:
    try:
        read(raw)
    except BadRow as bad:
        assert "\n" not in bad.where


def test_odd_rows_are_read_and_counted_once() -> None:
    reader = EvalsReader()
    row = evals_row(1)
    row["info"] = json.dumps(row["info"])
    del row["task"]
    for _ in range(3):
        assert reader(Row(0, "x:1", json.dumps(row).encode())).info.module_name == "Scale1"
    assert reader.oddities == {"info is a JSON string, not an object": 1, "no column task": 1}
