"""Stream Parquet as JSON rows without loss.

Values without a JSON type become strings: dates, times and durations in ISO 8601 (an instant with a time zone
in UTC, with `Z`), decimals in digits, binary in base64. Maps become lists of pairs. A value that cannot be
written without loss (NaN, an infinity, a date after the year 9999, text that is not UTF-8) is a fault of its
row and becomes null. Does not use pandas, which pyarrow would use for nanoseconds where it is installed.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from kernelmill.errors import SourceError

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_EPOCH = datetime.datetime(1970, 1, 1)


def read_parquet(path: Path, label: str) -> Iterator[tuple[str, bytes, str | None]]:
    """Yield each row's location, its JSON, and its fault if any. Raises `SourceError` or OSError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    encode = msgspec.json.Encoder().encode
    try:
        # Small batches and no pre-buffering: a row group may be hundreds of megabytes.
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as table:
            names = list(table.schema_arrow.names)
            _check_names(label, table.schema_arrow)
            number = 0
            for batch in table.iter_batches(batch_size=64, use_threads=False):
                faults: dict[int, str] = {}
                columns = [_column(name, batch.column(n), faults) for n, name in enumerate(names)]
                for n in range(batch.num_rows):
                    row = dict(zip(names, (column[n] for column in columns), strict=True))
                    yield f"{label}: row {number}", encode(row), faults.get(n)
                    number += 1
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise SourceError(f"{label}: not a Parquet file that can be read ({first_line(error)})") from error


def first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _check_names(label: str, fields: Any, inside: str = "") -> None:
    """Reject duplicate column names at any level: a JSON object can hold only one of them."""
    names = [field.name for field in fields]
    for field in fields:
        if names.count(field.name) > 1:
            raise SourceError(f"{label}: two columns are called {inside}{field.name}")
        children = [field.type.field(n) for n in range(field.type.num_fields)]
        _check_names(label, children, f"{inside}{field.name}.")


def _column(name: str, array: Any, faults: dict[int, str]) -> list[Any]:
    """The values of a column as JSON values.

    Values that JSON cannot hold are recorded in `faults`, by row.
    """
    from pyarrow import types

    values: list[Any]
    temporal = _any(array.type, types.is_temporal)
    try:
        values = [_value(scalar) for scalar in array] if temporal else array.to_pylist()
    except (ValueError, OverflowError):
        values = []
        for n, scalar in enumerate(array):
            try:
                values.append(_value(scalar))
            except (ValueError, OverflowError) as error:
                faults.setdefault(n, f"column {name}: cannot be written as JSON ({first_line(error)})")
                values.append(None)
    if _any(array.type, types.is_floating):
        for n, value in enumerate(values):
            if not _is_finite(value):
                faults.setdefault(n, f"column {name}: NaN or an infinity, which JSON cannot hold")
                values[n] = None
    return values


def _any(kind: Any, test: Any) -> bool:
    """Whether a type, or a type nested in it, passes the test."""
    from pyarrow import types

    if types.is_dictionary(kind):
        return _any(kind.value_type, test)
    return bool(test(kind)) or any(_any(kind.field(n).type, test) for n in range(kind.num_fields))


def _is_finite(value: Any) -> bool:
    match value:
        case float():
            return math.isfinite(value)
        case list() | tuple():
            return all(map(_is_finite, value))
        case dict():
            return all(map(_is_finite, value.values()))
    return True


def _value(scalar: Any) -> Any:
    """One value, with dates and times as text. Raises ValueError or OverflowError."""
    from pyarrow import types

    kind = scalar.type
    if not scalar.is_valid:
        return None
    if types.is_timestamp(kind):
        return _date_and_time(scalar.value, kind.unit) + ("Z" if kind.tz else "")
    if types.is_time(kind):
        return _date_and_time(scalar.value, kind.unit).partition("T")[2]
    if types.is_duration(kind):
        whole, part = _parts(abs(scalar.value), kind.unit)
        return f"{'-' if scalar.value < 0 else ''}PT{whole}{part}S"
    if types.is_dictionary(kind):
        return _value(scalar.value)
    if types.is_struct(kind):
        return {name: _value(inner) for name, inner in scalar.items()}
    if types.is_map(kind):
        return [list(map(_value, pair.values())) for pair in scalar.values]
    if types.is_nested(kind) and kind.num_fields == 1:
        return [_value(inner) for inner in scalar.values]
    return scalar.as_py()


def _date_and_time(value: int, unit: str) -> str:
    whole, part = _parts(value, unit)
    return (_EPOCH + datetime.timedelta(seconds=whole)).isoformat() + part


def _parts(value: int, unit: str) -> tuple[int, str]:
    """Whole seconds, and the fraction as decimals."""
    per = _PER_SECOND[unit]
    whole, rest = divmod(value, per)
    return whole, f".{rest:0{len(str(per)) - 1}d}" if rest else ""
