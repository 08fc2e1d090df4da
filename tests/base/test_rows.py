from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmill.base.rows import (
    EvalsReader,
    Info,
    Row,
    RowReader,
    SyntheticRow,
    is_json_object,
    read_info,
    with_columns,
)
from kernelmill.errors import BadRow
from tests.conftest import evals_row
from tests.cost import calls_of

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
    out = with_columns(b'{"difficulty": null, "x": 1.50 ,"x":2}', {"difficulty": "high"})
    assert out == b'{ "x": 1.50 ,"x":2,"difficulty":"high"}'


@pytest.mark.parametrize(
    "body",
    [
        b'{"answer": "difficulty",  "a":1',
        b'{"a": {"difficulty" : 1.50, "b": ["difficulty", {"difficulty": "]}"}]}',
        b'{"a": "quote \\" and \\\\", "b": "\\"difficulty\\":", "b":  "x"',
        b'{"a": "\\u0064ifficulty"',
    ],
)
def test_the_name_of_a_column_elsewhere_in_the_row_changes_nothing(body: bytes) -> None:
    assert with_columns(body + b" }", {"difficulty": "low"}) == body + b',"difficulty":"low"}'


spaces = st.text(" \t\r", max_size=2)
NAMES = ["difficulty", "rater", "evaluation_raw", "x", "a b", "é", "", "\ud800"]


def spelt(name: str, escapes: list[bool]) -> str:
    """A JSON string, with some letters as escapes."""
    letters = [f"\\u{ord(c):04x}" if e or ord(c) > 0xD7FF else c for c, e in zip(name, escapes, strict=False)]
    return f'"{"".join(letters)}"'


def member(name: str, escapes: list[bool], value: Any, ascii_only: bool, gaps: list[str]) -> tuple[str, str]:
    shown = json.dumps(value, ensure_ascii=ascii_only)
    return name, f"{gaps[0]}{spelt(name, escapes)}{gaps[1]}:{gaps[2]}{shown}{gaps[3]}"


members = st.builds(
    member,
    st.sampled_from(NAMES),
    st.lists(st.booleans(), min_size=14, max_size=14),
    json_values | st.sampled_from(NAMES[:3]),
    st.booleans(),
    st.lists(spaces, min_size=4, max_size=4),
)


@given(st.lists(members, max_size=8), spaces, spaces, st.booleans())
def test_only_the_replaced_members_are_cut_out_of_any_object(
    row: list[tuple[str, str]], before: str, after: str, two: bool
) -> None:
    columns = {"difficulty": "low", "rater": "static"} if two else {"difficulty": "low"}
    raw = f"{before}{{{','.join(text for _, text in row) or before}}}{after}".encode()
    out = with_columns(raw, columns)
    kept = ",".join(text for name, text in row if name not in columns).rstrip()
    added = json.dumps(columns, separators=(",", ":"))[1:]
    assert out.decode() == "{" + kept + ("," if kept else "") + added
    assert json.loads(out) == {k: v for k, v in json.loads(raw).items() if k not in columns} | columns


def test_a_row_without_the_columns_is_added_to_without_being_taken_apart() -> None:
    """However large it is and however many members it has: the plain way costs a call for each of them."""
    columns = {"difficulty": "low", "rater": "x"}
    short, long = (
        json.dumps(evals_row(1, code_bytes=size, answer_bytes=size) | dict.fromkeys(map(str, range(size))))
        for size in (100, 20_000)
    )
    few = calls_of(lambda: with_columns(short.encode(), columns))
    assert calls_of(lambda: with_columns(long.encode(), columns)) == few < 50
    has_one = long.replace('"0": null', '"rater": null').encode()
    assert calls_of(lambda: with_columns(has_one, columns)) > 1000 * few, "what is taken apart is counted"


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


def test_a_row_with_a_fault_is_bad_for_every_reader() -> None:
    row = Row(0, "a.parquet: row 3", b"{}", "column loss: NaN")
    for reader in (RowReader(dict[str, Any]), EvalsReader()):
        with pytest.raises(BadRow, match=r"^a\.parquet: row 3: column loss: NaN$"):
            reader(row)  # type: ignore[operator]


def test_a_file_of_another_encoding_is_named_as_such() -> None:
    text = json.dumps(evals_row(1))
    with pytest.raises(BadRow, match="not UTF-8; it looks like UTF-16"):
        read(text.encode("utf-16").strip())
    with pytest.raises(BadRow, match="not UTF-8; it looks like UTF-16"):
        read(text.encode("utf-16-be").strip())
    with pytest.raises(BadRow, match=r"not UTF-8 \(invalid"):
        read(json.dumps(evals_row(1, answer="é!!!"), ensure_ascii=False).encode("latin-1"))


def test_a_column_that_nobody_asked_for_must_be_utf8_too() -> None:
    raw = json.dumps(evals_row(1)).encode()[:-1] + b', "more": "\xff"}'
    with pytest.raises(BadRow, match=r"not UTF-8 \(invalid"):
        read(raw)


@pytest.mark.parametrize(
    ("raw", "whole"),
    [
        (b"{}", True),
        (b' {"a": [1e999, "\\n", {"b": null}]} ', True),
        ('{"é": "ü"}'.encode(), True),
        (b'{"example_id":"a", garbage', False),
        (b'{"a": 1} 2', False),
        (b"[1]", False),
        (b"", False),
        (b'{"a": "\xff"}', False),
        (b'{"\xff": 1}', False),
        (b'{"a": NaN}', False),
        (b'{"a": "x\ny"}', False),
        (b'{"a": ' + b"[" * 100_000, False),
    ],
)
def test_a_whole_json_object_is_told_from_anything_else(raw: bytes, whole: bool) -> None:
    assert is_json_object(raw) is whole


def test_info_is_read_as_an_object_and_as_a_string_of_one() -> None:
    info = Info("A", "code")
    assert read_info("x:1", info) == read_info("x:1", '{"module_name": "A", "python_code": "code"}') == info
    for wrong in ("", "{", "[1]", "[" * 100_000, '{"module_name": 1}'):
        with pytest.raises(BadRow, match=r"^x:1: field \$\.info: "):
            read_info("x:1", wrong)


def test_labels_that_pandas_made_floats_are_written_as_integers_again() -> None:
    row = SyntheticRow("p", "A", "code", uuid=7.0, level=1.5, problem_id="2b", name=None)
    assert json.loads(msgspec.json.encode(row)) == {
        "prompt": "p", "module_name": "A", "python_code": "code", "uuid": 7, "name": None, "level": 1.5, "problem_id": "2b",
    }  # fmt: skip
    assert b'"uuid":7,' in msgspec.json.encode(row)
