"""The quick road to Arrow gives what the exact one gives, or gives up."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelmill.base.rows import Row
from kernelmill.errors import SourceError
from kernelmill.publish.batches import QuickReader, chunks, exact_batch
from kernelmill.publish.schema import Columns
from tests.conftest import evals_row, many
from tests.publish.test_parquet import made, tables

ODD = [
    b"null", b"NaN", b"-Infinity", b"1e400", b"-0", b"1.0", b"1e2", b"01", b"9007199254740993", b"18446744073709551616",
    b"5e-324", b"0.1e-400", b"2.2250738585072011e-308", b'"\\ud83d"', b'"\\ude00"', b'"\\ud83d\\ude00"', b'"\\u0000"', b'"\xff"',
    b'"\t"', b'"2020-01-01"', b"{}", b"[]", b"[[]]", b"[null]", b'{"a":1,"a":2}', b"true", b'""', b"}", b"{", b",", b'"', b"\r",
    b" ", b"} {", b"}null{", b":", b"\\", b"\0", b"\xc3\xa9",
]  # fmt: skip


def rows_of(lines: list[bytes]) -> list[Row]:
    return [Row(index, f"x:{index + 1}", line) for index, line in enumerate(lines)]


def both_roads(known: list[bytes], lines: list[bytes]) -> tuple[Any, Any]:
    """What the quick road makes of lines when others are known, and what the exact one does: a batch, None or an error."""
    columns = Columns()
    for row in rows_of(known):
        columns.take(row)
    schema = columns.schema()
    (chunk,) = chunks(iter(rows_of(lines)))
    quick = QuickReader(columns.row_type, schema)(chunk.rows)
    try:
        values = [columns.take(row) for row in chunk.rows]
        exact = exact_batch(chunk.rows, values, schema) if columns.schema() == schema else None
    except SourceError as error:
        exact = error
    return quick, exact


@settings(max_examples=many(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(tables(), st.data())
def test_whatever_stands_in_the_lines_the_roads_agree_or_the_quick_one_gives_up(
    rows: list[dict[str, Any]], data: st.DataObject
) -> None:
    lines = [json.dumps(row, ensure_ascii=data.draw(st.booleans())).encode() for row in rows]
    spoilt = list(lines)
    for _ in range(data.draw(st.integers(0, 2))):
        number = data.draw(st.integers(0, len(lines) - 1))
        line = spoilt[number]
        start = data.draw(st.integers(0, len(line)))
        end = data.draw(st.integers(start, min(len(line), start + 6)))
        spoilt[number] = (line[:start] + data.draw(st.sampled_from(ODD)) + line[end:]).strip() or b"{}"
    try:
        quick, exact = both_roads(lines, spoilt)
    except SourceError:
        return  # the rows have no schema to begin with
    if quick is not None:
        assert isinstance(exact, pa.RecordBatch)
        quick.validate(full=True)
        assert quick.to_pylist() == exact.to_pylist()


KNOWN = [
    b'{"i":1,"f":0.5,"t":"x","b":true,"l":[1],"o":{"p":1.5,"q":"y"},"m":[{"r":"z","n":[0.5]}]}',
]


@pytest.mark.parametrize(
    "line",
    [
        b"{}",
        b'{"i":-9223372036854775808,"f":9007199254740991}',
        b'{"f":3,"t":"\\ud83d\\ude00\\u0000\\/\\b"}',
        b'{"f":5e-324,"b":null,"l":[]}',
        b'{"f":2.2250738585072011e-308}',
        b'{"f":0.1000000000000000055511151231257827021181583404541015625}',
        b'{"t":"2020-01-01T00:00:00Z","o":{}}',
        b'{"t":"caf\xc3\xa9","o":null,"m":[]}',
        b'{"m":[{},null,{"n":[1,null,2e3]}],"l":[null]}',
        b'{"i":1,"i":2,"t":null,"t":"last"}',
        b'{"o":{"p":1,"q":"gone"},"o":{"p":1,"p":2}}',
        b'{"f":-0,"o":{"p":-0.0}}',
        b'{"\\u0069":\r7 ,\t"t" : ""}',
    ],
)
def test_rows_like_those_before_take_the_quick_road(line: bytes) -> None:
    quick, exact = both_roads(KNOWN, [line, *KNOWN, line])
    assert quick is not None
    quick.validate(full=True)
    assert quick.to_pylist() == exact.to_pylist()


@pytest.mark.parametrize(
    "line",
    [
        b'{"f":9007199254740993}',
        b'{"f":1e300}',
        b'{"o":{"p":-9007199254740992}}',
        b'{"m":[{"n":[0,18446744073709551617]}]}',
        b'{"i":9223372036854775808}',
        b'{"i":1.0}',
        b'{"i":true}',
        b'{"f":NaN}',
        b'{"f":Infinity}',
        b'{"f":1e400}',
        b'{"t":"\\ud83d"}',
        b'{"t":"\xff"}',
        b'{"t":1}',
        b'{"new":1}',
        b'{"i":1} null {"i":1}',
        b'{"i":1} {"i":1}',
        b'{"i":',
        b"null",
        b"[]",
        b"",
    ],
)
def test_what_the_readers_may_take_differently_is_left_to_the_exact_road(line: bytes) -> None:
    quick, _ = both_roads(KNOWN, [*KNOWN, line])
    assert quick is None


def test_rows_that_only_together_are_json_are_not_taken() -> None:
    quick, exact = both_roads([b'{"a":1}'], [b'{"a":1} {"a":', b"2}"])
    assert quick is None
    assert isinstance(exact, SourceError)


@pytest.mark.parametrize("nulls", [b'{"a":[]}', b'{"a":[null,null]}', b'{"a":null}', b'{"a":{"b":null}}'])
def test_columns_of_nulls_alone_come_as_they_are(nulls: bytes) -> None:
    quick, exact = both_roads([nulls], [nulls, nulls])
    quick.validate(full=True)
    assert quick.to_pylist() == exact.to_pylist() == [json.loads(nulls)] * 2


def test_a_row_with_a_fault_is_left_to_the_exact_road() -> None:
    columns = Columns()
    columns.take(Row(0, "x:1", b'{"a":1}'))
    (chunk,) = chunks(iter([Row(0, "x:1", b'{"a":null}', "a value that JSON cannot hold")]))
    assert QuickReader(columns.row_type, columns.schema())(chunk.rows) is None


@pytest.mark.parametrize("split", ["none", "rows"])
def test_both_roads_write_the_same_bytes(tmp_path: Path, split: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelmill.publish.batches.CHUNK_ROWS", 50)
    monkeypatch.setattr("kernelmill.publish.parquet_writer.GROUP_ROWS", 300)
    source = tmp_path / "rows.jsonl"
    with source.open("w", encoding="utf-8") as file:
        for n in range(1200):
            row = evals_row(
                n, n / 7 if n % 5 else None, answer=None if n % 3 else "é" * n, tags=["a"] * (n % 3)
            )
            file.write(json.dumps(row, ensure_ascii=bool(n % 2)) + "\n")
    taken = []
    read = QuickReader.__call__

    def counted(self: QuickReader, rows: list[Row]) -> Any:
        taken.append(read(self, rows))
        return taken[-1]

    monkeypatch.setattr(QuickReader, "__call__", counted)
    quick = made(source, tmp_path / "quick", split)
    assert len(taken) == 24
    assert all(batch is not None for batch in taken)
    monkeypatch.setattr(QuickReader, "__call__", lambda self, rows: None)
    exact = made(source, tmp_path / "exact", split)
    assert {name: file.sha256 for name, file in quick.files.items()} == {
        name: file.sha256 for name, file in exact.files.items()
    }


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(tables())
def test_any_rows_are_written_as_the_same_bytes_by_both_roads(rows: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name)
        (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        try:
            quick = made(folder / "rows.jsonl", folder / "quick")
        except SourceError:
            return  # no columns, or empty objects only
        patch.setattr(QuickReader, "__call__", lambda self, rows: None)
        exact = made(folder / "rows.jsonl", folder / "exact")
        assert {key: file.sha256 for key, file in quick.files.items()} == {
            key: file.sha256 for key, file in exact.files.items()
        }
