"""Convert rows to Arrow record batches, by a fast and an exact code path that give the same values.

Fast path: msgspec decodes every row of a chunk into the compiled type of the rows before it. Each leaf of a
column goes to pyarrow as one flat list. This path gives up where a row has another type, is not JSON, or has
a number of 2 ** 53 or more in a column of floats: there msgspec has converted an integer to a float and may
have rounded it.

Exact path: the whole chunk is decoded to dicts and inspected value by value. This path learns new columns and
types from a row, or reports what is wrong with it.

pyarrow's own JSON reader is not used. It takes more time than both steps of the fast path, builds broken
arrays from lists that contain only nulls, reads a line `null` as a row of nulls, and crashes where there is
no other line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from kernelmill.base.rows import Row, row_chunks
from kernelmill.errors import BadRow
from kernelmill.publish.schema import json_text

CHUNK_ROWS, CHUNK_BYTES = 2_000, 1 << 20


class Chunk(NamedTuple):
    """A chunk of rows that is converted at once."""

    rows: list[Row]
    text: bytes
    """The rows as JSONL."""


def chunks(rows: Iterator[Row]) -> Iterator[Chunk]:
    for chunk in row_chunks(rows, CHUNK_ROWS, CHUNK_BYTES):
        yield Chunk(chunk, b"\n".join([*(row.raw for row in chunk), b""]))


class _Unsure(Exception):
    """A value that the fast path may have changed."""


class QuickReader:
    """The fast path: reads rows of one type as batches.

    `row_type` and `schema` must come from the same `Columns` at the same time.
    """

    def __init__(self, row_type: Any, schema: Any, json_columns: Iterable[str] = ()) -> None:
        self._schema = schema
        self._json = [f"f{schema.get_field_index(name)}" for name in json_columns]
        self._decode = msgspec.json.Decoder(row_type).decode

    def __call__(self, rows: list[Row]) -> Any:
        """Return the batch, or None where the rows need the exact path."""
        import pyarrow as pa

        decode = self._decode
        try:
            values = [decode(row.raw) for row in rows]
            # The row type also accepts null, as any object type does.
            if any(row.fault is not None for row in rows) or any(value is None for value in values):
                return None
            for alias in self._json:
                for value in values:
                    setattr(value, alias, json_text(getattr(value, alias)))
            return pa.RecordBatch.from_arrays(_fields(self._schema, values), schema=self._schema)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, _Unsure):
            return None


def _fields(fields: Any, values: Sequence[Any]) -> list[Any]:
    """One array per field of non-null objects. The types of `Columns` call their fields f0, f1 and so on."""
    return [
        _flat(field.type, [*map(attrgetter(f"f{number}"), values)]) for number, field in enumerate(fields)
    ]


def _flat(kind: Any, values: list[Any]) -> Any:
    """An array of values as decoded by the compiled type. Raises `_Unsure`."""
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
    # The index of each object among the non-null ones, and None for null, which `take` turns into a null.
    places = accumulate(not null for null in nulls)
    return there.take(
        pa.array([None if null else place - 1 for null, place in zip(nulls, places, strict=True)], pa.int64())
    )


def exact_batch(rows: list[Row], values: list[dict[str, Any]], schema: Any) -> Any:
    """Convert decoded rows to a batch.

    Raises `BadRow` for an integer that a column of floats cannot hold exactly.
    """
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
