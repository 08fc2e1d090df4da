"""A column is declared once, and what is read, written and published agrees with the declaration."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest

from kernelmill.base.columns import (
    ADDED,
    CONTAMINATED,
    EVALS,
    FORMATS,
    KERNELBOOK,
    SPECIFICATION,
    Column,
    pattern_of,
)
from kernelmill.base.rows import EvalsRow, KernelBookRow, Row, SyntheticRow
from kernelmill.publish.card.tables import _column
from kernelmill.publish.schema import Columns, ColumnType
from tests.conftest import evals_row

ALL = {column.name: column for columns in FORMATS.values() for column in columns}


def declared_only(row: dict[str, Any], form: str = "evals") -> bool:
    return {pattern_of(name) for name in row} <= {column.name for column in FORMATS[form]}


@pytest.mark.parametrize(
    ("row_type", "columns"),
    [(EvalsRow, EVALS), (SyntheticRow, SPECIFICATION), (KernelBookRow, KERNELBOOK)],
)
def test_every_column_that_is_read_is_declared(row_type: Any, columns: tuple[Column, ...]) -> None:
    assert {field.name for field in msgspec.structs.fields(row_type)} == {column.name for column in columns}


def schema_of(row: dict[str, Any]) -> pa.Schema:
    columns = Columns()
    columns.take(Row(0, "here", msgspec.json.encode(row)))
    return columns.schema()


def test_every_declared_column_is_published_with_its_type_and_described_on_the_card() -> None:
    added = {column.name: None for columns in ADDED.values() for column in columns}
    row = evals_row(1) | added | {"difficulty": "low"}
    assert declared_only(row)
    schema = schema_of(row)
    for column in FORMATS["evals"]:
        assert schema.field(column.name).type == ColumnType.of(column.name, column.type).arrow(), column
        assert _column(column.name, "evals") == column.meaning


def test_specifications_too() -> None:
    row = dict.fromkeys((column.name for column in SPECIFICATION), None) | {"prompt": "Add."}
    schema = schema_of(row)
    for column in SPECIFICATION:
        assert schema.field(column.name).type == ColumnType.of(column.name, column.type).arrow(), column
        assert _column(column.name, "synthetic") == column.meaning


def test_a_column_of_a_benchmark_is_declared_under_a_pattern() -> None:
    assert pattern_of(f"{CONTAMINATED}KernelBench") in ALL
    assert schema_of({"a": 1, f"{CONTAMINATED}KernelBench": None}).field(1).type == pa.struct(
        [("problem", pa.string()), ("how", pa.string()), ("share", pa.float64())]
    )


def test_columns_of_one_name_have_one_type_unless_a_format_fixes_it() -> None:
    kinds: dict[str, Any] = {}
    for columns in FORMATS.values():
        for column in columns:
            if column.rule == "inferred":
                assert kinds.setdefault(column.name, column.type) == column.type, column
