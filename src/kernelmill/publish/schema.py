"""Infer the columns of a source row by row, and map them to an Arrow schema.

The columns of our own formats are declared in `base.columns`. Other columns are inferred: the type of the
first non-null value, float for a mix of integers and floats, and the union of the keys of objects. A column
whose values have no common type is an error that names both rows. There are no other conversions: no number
becomes text, and no text a number.

The keys of a verdict are data (names of kernels, GPUs, checks), so a type built from them would differ in
every run: `verdict` and `turns` are published as JSON text. No column has the type null, to which other tools
cannot append.

Compiled code checks rows that match the rows before them. Only the others are inspected value by value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from kernelmill.base.columns import FORMATS, pattern_of
from kernelmill.base.rows import Row, RowReader, read_info
from kernelmill.errors import BadRow, SourceError

_LISTED = {
    form: {column.name: column.type for column in FORMATS[form] if column.rule in ("required", "always")}
    for form in ("evals", "synthetic")
}
"""The columns that every dataset of a format has, with their types."""
_REQUIRED = {
    form: tuple(column.name for column in FORMATS[form] if column.rule == "required") for form in _LISTED
}
_OPTIONAL = {
    form: {column.name: column.type for column in FORMATS[form] if column.rule == "fixed"} for form in _LISTED
}
"""Optional columns with a fixed type."""
_IN_MESSAGES = {"reasoning": "text", "reasoning_content": "text"}
"""The same for the messages of a column of chats."""
_INFERRED = {
    column.name: column.type
    for columns in FORMATS.values()
    for column in columns
    if column.rule == "inferred"
}
"""The declared type is used only for a column of nulls."""
_FREE_KEYS = tuple(name for name, kind in _INFERRED.items() if kind == "json")
"""Columns that are published as JSON text."""
_VERDICT_ROW = {"schema", "status", "verdict", "tier", "checks"}
_OF_A_VERDICT = (
    "task", "candidate", "grade", "checks", "flags", "compile", "perf", "rewards", "kb_compat", "env", "cost",
)  # fmt: skip
"""The same for rows that are verdicts themselves, as written by `kernelmill evaluate`."""
_DIFFICULTIES = ("low", "medium", "high")
_NAMES = {
    "bool": "true or false", "int": "a whole number", "float": "a number", "text": "text", "list": "a list",
    "object": "an object",
}  # fmt: skip
_MOST_KEYS = 1000
"""Maximum number of distinct keys of one object. More keys are data, not columns, and do not fit a table."""
_INT = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]

Format = Literal["evals", "synthetic", "other"]


class ColumnType:
    """The inferred type of one value: its kind and nested types.

    `kind` is None while only nulls were seen.
    """

    __slots__ = ("fields", "free", "item", "kind", "listed", "optional", "path", "required", "where")

    def __init__(self, path: str, kind: str | None = None, where: str = "", listed: bool = False) -> None:
        self.path = path
        self.kind = kind
        self.where = where
        """The row that set the kind, for the message when another row contradicts it."""
        self.listed = listed
        """Whether this is one of our own columns, whose kind is fixed."""
        self.item: ColumnType | None = None
        self.fields: dict[str, ColumnType] = {}
        self.optional: dict[str, Any] = {}
        self.required: tuple[str, ...] = ()
        self.free: tuple[str, ...] = ()
        """Fields that are published as JSON text if they hold an object or a list."""

    @classmethod
    def of(cls, path: str, pattern: Any) -> ColumnType:
        """The type of a listed column."""
        if isinstance(pattern, list):
            column_type = cls(path, "list", listed=True)
            column_type.item = cls.of(f"{path}[]", pattern[0])
            column_type.item.optional = _IN_MESSAGES
            return column_type
        if isinstance(pattern, dict):
            column_type = cls(path, "object", listed=True)
            inside = f"{path}." if path else ""
            column_type.fields = {name: cls.of(inside + name, inner) for name, inner in pattern.items()}
            return column_type
        return cls(path, pattern, listed=True)

    def widen(self, value: Any, where: str) -> None:
        """Extend the type to hold a value. Raises where it cannot hold both this value and earlier ones."""
        if value is None:
            if self.kind == "difficulty":
                raise BadRow(where, "expected low, medium or high, got null", f"$.{self.path}")
            return
        kind = _kind(value)
        if self.kind is None:
            self.kind, self.where = kind, where
        if self.kind == "json":
            return
        if self.kind == "difficulty":
            if value not in _DIFFICULTIES:
                raise BadRow(where, f"expected low, medium or high, got {value!r}", f"$.{self.path}")
            return
        if {kind, self.kind} == {"int", "float"} and not (self.listed and self.kind == "int"):
            self.kind = "float"
        elif kind != self.kind:
            self._contradicted(kind, where)
        if kind == "int" and not -(2**63) <= value < 2**63:
            raise SourceError(f"{where}: column {self.path}: {value} needs more than 64 bits; {self._json()}")
        if kind == "list":
            if self.item is None:
                self.item = ColumnType(f"{self.path}[]")
            for item in value:
                self.item.widen(item, where)
        elif kind == "object":
            self._widen_object(value, where)

    def _widen_object(self, value: dict[str, Any], where: str) -> None:
        for name in self.required:
            if name not in value:
                raise BadRow(where, "the column is missing", f"$.{name}")
        inside = f"{self.path}." if self.path else ""
        for name, inner in value.items():
            column_type = self.fields.get(name)
            if column_type is None:
                if not name or "\0" in name:
                    raise BadRow(where, f"a column called {name!r}, which datasets cannot load: rename it")
                if len(self.fields) >= _MOST_KEYS:
                    what = f"column {self.path} has" if self.path else "the rows have"
                    raise SourceError(
                        f"{where}: {what} more than {_MOST_KEYS:,} different keys; {self._json()}"
                    )
                pattern = self.optional.get(name)
                column_type = ColumnType.of(inside + name, pattern) if pattern else ColumnType(inside + name)
                self.fields[name] = column_type
                if pattern == "difficulty":
                    self.required += (name,)  # earlier rows without it are found in the next pass
            if name in self.free and isinstance(inner, dict | list) and column_type.kind in (None, "text"):
                column_type.kind = "json"  # both are text in Arrow, so earlier rows stay valid
            column_type.widen(inner, where)

    def _contradicted(self, kind: str, where: str) -> None:
        if self.listed:
            expected = _NAMES.get(self.kind or "", "text")
            raise BadRow(where, f"expected {expected}, got {_NAMES[kind]}", f"$.{self.path}")
        raise SourceError(
            f"column {self.path} holds {_NAMES[self.kind or '']} in {self.where} and {_NAMES[kind]} in {where}: "
            f"make them alike, or {self._json()}"
        )

    def _json(self) -> str:
        return f"publish the column as JSON text with --json-columns {self.path.partition('.')[0].partition('[')[0]}"

    def decoded_as(self) -> Any:
        """The type for msgspec to decode. Raises ValueError where msgspec does not support a key."""
        match self.kind:
            case None:
                return type(None)
            case "json":
                return Any
            case "difficulty":
                return Literal[_DIFFICULTIES]
            case "list":
                item: Any = self.item.decoded_as() if self.item else type(None)
                return list[item] | None
            case "object":
                return self._struct() | None
            case kind:
                return {"bool": bool, "int": _INT, "float": float, "text": str}[kind] | None

    def _struct(self) -> Any:
        names = {f"f{n}": name for n, name in enumerate(self.fields)}
        fields: list[Any] = [
            (alias, self.fields[name].decoded_as(), *([] if name in self.required else [None]))
            for alias, name in names.items()
        ]
        return msgspec.defstruct(
            "Seen", fields, rename=names, forbid_unknown_fields=True, kw_only=True, gc=False
        )

    def arrow(self) -> Any:
        """The Arrow type. Raises `SourceError` where Parquet has none."""
        import pyarrow as pa

        match self.kind:
            case None:
                return ColumnType.of(self.path, _INFERRED.get(pattern_of(self.path), "text")).arrow()
            case "list":
                return pa.list_(self.item.arrow() if self.item else pa.string())
            case "object":
                if not self.fields:
                    raise SourceError(
                        f"column {self.path} holds empty objects only, which Parquet cannot; {self._json()}"
                    )
                return pa.struct([(name, field.arrow()) for name, field in self.fields.items()])
            case kind:
                known = {"bool": pa.bool_(), "int": pa.int64(), "float": pa.float64()}
                return known.get(kind, pa.string())


def _kind(value: Any) -> str:
    match value:
        case bool():
            return "bool"
        case int():
            return "int"
        case float():
            return "float"
        case str():
            return "text"
        case list():
            return "list"
        case _:
            return "object"


class Columns:
    """The columns of a source, inferred from the rows read so far: `take` every row, then call `schema`."""

    def __init__(self, json_columns: tuple[str, ...] = ()) -> None:
        self._json = json_columns
        self._read = RowReader(dict[str, Any])
        self._like_before: Any = None
        self._row: ColumnType | None = None
        self._given: set[str] = set()
        self.format: Format = "other"
        self.news = 0
        """Number of rows that did not match the rows before them. The schema changes only if this does."""
        self.info_is_text = 0
        """Rows whose `info` is a JSON string, as some producers store it. It is published as an object."""

    def take(self, row: Row) -> dict[str, Any]:
        """Decode a row for the schema.

        Raises `BadRow`, or `SourceError` where it contradicts an earlier row.
        """
        values = self._read(row)
        if self.format == "evals" and isinstance(values.get("info"), str):
            values["info"] = _object(row.where, values["info"])
            self.info_is_text += 1
        if self._like_before is None:
            self._learn(row.where, values)
        else:
            try:
                msgspec.convert(values, self._like_before)
            except (msgspec.ValidationError, RecursionError):
                self._learn(row.where, values)
        for name in self.json_text:
            values[name] = json_text(values.get(name))
        return values

    @property
    def row_type(self) -> Any:
        """The msgspec type of a row that matches the rows before it; None where there is none."""
        return self._like_before

    @property
    def json_text(self) -> list[str]:
        """The columns that are published as JSON text."""
        return [name for name, column_type in self._fields().items() if column_type.kind == "json"]

    def _learn(self, where: str, values: dict[str, Any]) -> None:
        if self._row is None:
            self._row = self._begin(values)
            if self.format == "evals" and isinstance(values["info"], str):
                values["info"] = _object(where, values["info"])
                self.info_is_text += 1
        self.news += 1
        self._given.update(values)
        try:
            self._row.widen(values, where)
            self._like_before = self._row.decoded_as()
        except RecursionError:
            raise BadRow(where, "nested too deeply") from None
        except ValueError:
            self._like_before = None  # msgspec does not support a key: inspect every row value by value

    def _begin(self, first: dict[str, Any]) -> ColumnType:
        """Detect the format from the columns of the first row, and return its initial type."""
        if {"example_id", "prompt", "completion", "info"} <= first.keys():
            self.format = "evals"
        elif first.keys() >= _LISTED["synthetic"].keys() and isinstance(first["prompt"], str):
            self.format = "synthetic"
        column_type = ColumnType.of("", _LISTED.get(self.format, {}))
        column_type.optional = _OPTIONAL.get(self.format, {})
        column_type.required = _REQUIRED.get(self.format, ())
        is_verdict = self.format == "other" and first.keys() >= _VERDICT_ROW
        column_type.free = _OF_A_VERDICT if is_verdict else _FREE_KEYS
        for name in self._json:
            if name in column_type.fields and column_type.fields[name].kind != "text":
                raise SourceError(f"--json-columns {name}: the column has a type of its own in these rows")
            column_type.fields[name] = ColumnType(name, "json")
        return column_type

    def saw(self, batch: Any) -> None:
        """Record which columns that were empty so far have a value in this batch."""
        self._given.update(name for name in self.missing if batch.column(name).null_count < len(batch))

    @property
    def missing(self) -> list[str]:
        """Our own columns that no row has. They are published as nulls."""
        return [name for name in self._fields() if name not in self._given]

    def _fields(self) -> dict[str, ColumnType]:
        return self._row.fields if self._row is not None else {}

    def schema_so_far(self) -> Any:
        """The Arrow schema for the rows read so far; None where it needs more rows."""
        try:
            return self.schema()
        except SourceError:
            return None

    def schema(self) -> Any:
        """The Arrow schema: our own columns first, then the others in order of appearance."""
        import pyarrow as pa

        unknown = [name for name in self._json if name not in self._given]
        if unknown:
            raise SourceError(f"--json-columns {unknown[0]}: no row has this column")
        if not self._fields():
            raise SourceError("the rows have no columns: there is nothing to publish")
        return pa.schema([(name, column_type.arrow()) for name, column_type in self._fields().items()])


def json_text(value: Any) -> str | None:
    """A value for a column of JSON text.

    Strings are kept: in rows that were published before they are JSON already.
    """
    return value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode()


def _object(where: str, text: str) -> dict[str, Any]:
    """Decode an `info` that is stored as a JSON string. Raises `BadRow`."""
    read_info(where, text)  # validates it, and raises `BadRow`
    value: dict[str, Any] = msgspec.json.decode(text)
    return value


def describe(schema: Any) -> Iterator[tuple[str, str]]:
    """Yield the columns and their types as text, for messages and the manifest."""
    for field in schema:
        yield field.name, str(field.type)
