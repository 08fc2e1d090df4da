"""Rows as Arrow record batches, by two roads that give the same values.

The quick road: every row of a block is checked by msgspec against the type of the rows before it, and then the text of the block is
parsed by pyarrow's own reader, which makes no Python objects and needs no interpreter: several blocks at a time. It gives up where
the two readers could differ, and then the whole block takes the exact road, row by row and value by value:

- a row that is not like those before it, or not JSON: the exact road learns from it, or says what is wrong;
- a key that stands twice in an object: msgspec takes the last one, pyarrow refuses;
- numbers from 2 ** 53 in a column of floats: pyarrow rounds a whole number there without a word;
- a column of nulls alone: pyarrow makes broken arrays of lists of nothing.

pyarrow must never see what msgspec has not accepted: there is JSON, such as a lone `null`, at which it crashes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import msgspec

from kernelmill.errors import BadRow
from kernelmill.rows import Row

T = TypeVar("T")
BLOCK_ROWS, BLOCK_BYTES = 2_000, 2 << 20
READERS = 2
"""Threads that parse blocks. The rest of the work fills two cores, and each holds a few blocks in memory."""
_MOST_BYTES = 2**31 - 2
"""What pyarrow takes as one block."""


class Block(NamedTuple):
    """Rows that are read together."""

    rows: list[Row]
    text: bytes
    """The rows as a file of lines has them."""


def blocks(rows: Iterator[Row]) -> Iterator[Block]:
    part: list[Row] = []
    size = 0
    for row in rows:
        part.append(row)
        size += len(row.raw)
        if len(part) >= BLOCK_ROWS or size >= BLOCK_BYTES:
            yield _block(part)
            part, size = [], 0
    if part:
        yield _block(part)


def _block(rows: list[Row]) -> Block:
    return Block(rows, b"\n".join([*(row.raw for row in rows), b""]))


def ahead(
    pool: ThreadPoolExecutor, items: Iterator[Block], work: Callable[[Block], T]
) -> Iterator[tuple[Block, T]]:
    """Each block and what `work` makes of it, in order. A few are worked on ahead."""
    waiting: deque[tuple[Block, Future[T]]] = deque()
    for item in items:
        waiting.append((item, pool.submit(work, item)))
        if len(waiting) > READERS + 1:
            first, done = waiting.popleft()
            yield first, done.result()
    for first, done in waiting:
        yield first, done.result()


class QuickReader:
    """Reads blocks of rows that are all of `row_type`, a msgspec type, as batches of `schema`."""

    def __init__(self, row_type: Any, schema: Any) -> None:
        self._schema = schema
        self._decode = msgspec.json.Decoder(row_type).decode
        self._floats = [index for index, field in enumerate(schema) if _holds(field.type, "double")]
        self._able = not any(_holds(field.type, "null") for field in schema)

    def __call__(self, block: Block) -> Any:
        """The batch; None where the block has to take the exact road."""
        import pyarrow as pa
        from pyarrow import json

        if not self._able or len(block.text) > _MOST_BYTES or not self._accepts(block.rows):
            return None
        try:
            table = json.read_json(
                pa.BufferReader(block.text),
                json.ReadOptions(use_threads=False, block_size=len(block.text) + 1),
                json.ParseOptions(explicit_schema=self._schema, unexpected_field_behavior="error"),
            )
        except pa.ArrowInvalid:
            return None
        (batch,) = table.to_batches()
        if len(batch) != len(block.rows) or batch.schema != self._schema:
            raise AssertionError(f"{len(block.rows)} rows were read as {len(batch)} of {batch.schema}")
        return None if any(_has_big(batch.column(index)) for index in self._floats) else batch

    def _accepts(self, rows: list[Row]) -> bool:
        decode = self._decode
        try:
            for row in rows:
                # The type of a row is that of any object, and takes null too.
                if row.fault is not None or decode(row.raw) is None:
                    return False
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        return True


def _holds(kind: Any, name: str) -> bool:
    """Whether a type is the named one, or one inside it is."""
    return str(kind) == name or any(_holds(kind.field(index).type, name) for index in range(kind.num_fields))


def _has_big(column: Any) -> bool:
    """Whether there is a float from which on not every whole number has one of its own."""
    import pyarrow.compute as pc

    if str(column.type) == "double":
        extremes = pc.min_max(column).as_py()
        return any(value is not None and abs(value) >= 2**53 for value in extremes.values())
    parts = (
        [column.values] if hasattr(column, "values") else column.flatten() if column.type.num_fields else []
    )
    return any(_has_big(part) for part in parts)


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
