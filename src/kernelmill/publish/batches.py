"""Rows as Arrow record batches, by two roads that give the same values.

The quick road: msgspec reads every row of a block straight into the type of the rows before it, which is compiled, and each column is
handed to pyarrow as one flat list for each kind of leaf in it. It gives up where a row is not like those before it, is not JSON at all,
or has a number from 2 ** 53 in a column of floats: there the type has made a float of a whole number and may have rounded it. Then the
whole block takes the exact road: each row into a dict, which is looked at value by value. That one learns from the row, or says what is
wrong with it.

pyarrow's own JSON reader is not used: it takes more time than both steps of the quick road, makes broken arrays of lists that hold
nulls alone, takes a line `null` for a row of nulls, and crashes where there is no other line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from kernelmill.base.rows import Row, row_lots
from kernelmill.errors import BadRow
from kernelmill.publish.shapes import json_text

BLOCK_ROWS, BLOCK_BYTES = 2_000, 1 << 20


class Block(NamedTuple):
    """Rows that are read together."""

    rows: list[Row]
    text: bytes
    """The rows as a file of lines has them."""


def blocks(rows: Iterator[Row]) -> Iterator[Block]:
    for lot in row_lots(rows, BLOCK_ROWS, BLOCK_BYTES):
        yield Block(lot, b"\n".join([*(row.raw for row in lot), b""]))


class _Unsure(Exception):
    """A value that the quick road may have changed."""


class QuickReader:
    """Reads rows of one type as batches of the schema that goes with it: both from the same `Columns`, at the same time."""

    def __init__(self, row_type: Any, schema: Any, json_columns: Iterable[str] = ()) -> None:
        self._schema = schema
        self._json = [f"f{schema.get_field_index(name)}" for name in json_columns]
        self._decode = msgspec.json.Decoder(row_type).decode

    def __call__(self, rows: list[Row]) -> Any:
        """The batch; None where the rows have to take the exact road."""
        import pyarrow as pa

        decode = self._decode
        try:
            values = [decode(row.raw) for row in rows]
            # The type of a row is that of any object, and takes null too.
            if any(row.fault is not None for row in rows) or any(value is None for value in values):
                return None
            for alias in self._json:
                for value in values:
                    setattr(value, alias, json_text(getattr(value, alias)))
            return pa.RecordBatch.from_arrays(_fields(self._schema, values), schema=self._schema)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, _Unsure):
            return None


def _fields(fields: Any, values: Sequence[Any]) -> list[Any]:
    """An array for each field of objects, of which none is null. The types of `Columns` call their fields f0, f1 and so on."""
    return [
        _flat(field.type, [*map(attrgetter(f"f{number}"), values)]) for number, field in enumerate(fields)
    ]


def _flat(kind: Any, values: list[Any]) -> Any:
    """An array of values as the compiled type gives them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not kind.num_fields:
        array = pa.array(values, kind)
        if pa.types.is_floating(kind) and (pc.max(pc.abs(array)).as_py() or 0) >= 2**53:
            raise _Unsure
        return array
    nulls = [value is None for value in values]
    mask = pa.array(nulls) if True in nulls else None
    if pa.types.is_list(kind):
        lists = [value or () for value in values] if mask is not None else values
        offsets = pa.array([0, *accumulate(map(len, lists))], pa.int32())
        items = _flat(kind.value_type, [*chain.from_iterable(lists)])
        return pa.ListArray.from_arrays(offsets, items, type=kind, mask=mask)
    if mask is None:
        return pa.StructArray.from_arrays(_fields(kind, values), fields=[*kind])
    there = pa.StructArray.from_arrays(
        _fields(kind, [value for value in values if value is not None]), fields=[*kind]
    )
    # The place of each object among those that are there; none for null, and so null in what is taken.
    places = accumulate(not null for null in nulls)
    return there.take(
        pa.array([None if null else place - 1 for null, place in zip(nulls, places, strict=True)], pa.int64())
    )


def exact_batch(rows: list[Row], values: list[dict[str, Any]], schema: Any) -> Any:
    """Decoded rows as a batch. Raises `BadRow` for a whole number that a column of floats cannot hold."""
    import pyarrow as pa

    arrays = [_array(field, rows, [row.get(field.name) for row in values]) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(field: Any, rows: list[Row], values: list[Any]) -> Any:
    import pyarrow as pa

    try:
        return pa.array(values, field.type)
    except (pa.ArrowInvalid, OverflowError):
        for row, value in zip(rows, values, strict=True):
            try:
                pa.array([value], field.type)
            except (pa.ArrowInvalid, OverflowError):
                raise BadRow(
                    row.where,
                    f"a whole number that a float cannot hold exactly: publish the column as JSON text with --json-columns {field.name}",
                    f"$.{field.name}",
                ) from None
        raise
