"""What the columns of a source hold, learned row by row, and how that is written as Arrow.

The columns of our own formats are listed here with their types, which never change; what else a row has is learned: the type of
its first value that is not null, whole numbers with fractions among them as floats, the union of the keys of objects. A column
with values that no one type can hold is an error that names both rows. Nothing is converted but that: no number becomes text,
no text a number.

The keys of a verdict are data (names of kernels, GPUs, checks), so a type made of them would be another one in every run:
`verdict` and `turns` are published as JSON text. No column has the type null, which other tools cannot append to.

A row that is like the rows before it is checked by compiled code, and only the others are looked at value by value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from kernelmill.base.rows import Row, RowReader, read_info
from kernelmill.errors import BadRow, SourceError

_MESSAGE = {"role": "text", "content": "text"}
_EVALS = {
    "example_id": "int",
    "prompt": [_MESSAGE],
    "completion": [{**_MESSAGE, "reasoning": "text"}],  # null where nobody thought: other runs have thoughts
    "task": "text",
    "reward": "float",
    "generation_ms": "float",
    "scoring_ms": "float",
    "total_ms": "float",
    "info": {"module_name": "text", "python_code": "text", "triton_code": "text"},
    "answer": "text",
    "speedup_reward": "float",
    "num_turns": "float",
    "oai_tools": "text",
}
_SYNTHETIC = {"prompt": "text", "module_name": "text", "python_code": "text"}
_OPTIONAL = {
    "evals": {"difficulty": "difficulty", "evaluation_raw": "text", "rater": "text"},
    "synthetic": {"triton_code": "text"},
    "messages": {"reasoning": "text", "reasoning_content": "text"},
}
"""Columns that have a type of their own where they are there at all."""
_FREE_KEYS = ("verdict", "turns")
"""Columns whose objects have keys that differ from row to row: JSON text."""
_VERDICT_ROW = {"schema", "status", "verdict", "tier", "checks"}
_OF_A_VERDICT = (
    "task", "candidate", "grade", "checks", "flags", "compile", "perf", "rewards", "kb_compat", "env", "cost",
)  # fmt: skip
"""The same where a row is a verdict itself, as `kernelmill evaluate` writes it."""
_CONTAMINATED = "contaminated_"
_ONLY_NULLS: dict[str, Any] = {
    "tokens_in": "int",
    "tokens_out": "int",
    "problem_level": "int",
    "problem_id": "int",
    "problem_uuid": "int",
    "level": "int",
    "uuid": "int",
    "stars": "int",
    "synthetic": "bool",
    "licenses": ["text"],
    _CONTAMINATED: {"problem": "text", "how": "text", "share": "float"},
}
"""Types of our columns that are not text, where all rows of a run have null in them: another run has values there."""
_REQUIRED = {
    "evals": ("example_id", "prompt", "completion", "reward", "info"),
    "synthetic": tuple(_SYNTHETIC),
}
_DIFFICULTIES = ("low", "medium", "high")
_NAMES = {
    "bool": "true or false", "int": "a whole number", "float": "a number", "text": "text", "list": "a list",
    "object": "an object",
}  # fmt: skip
_MOST_KEYS = 1000
"""Different keys of one object. More are no columns but data, which a table cannot hold."""
_INT = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]

Format = Literal["evals", "synthetic", "other"]


class Shape:
    """The type of one value: its kind, and what is inside it. `kind` is None as long as only nulls were seen."""

    __slots__ = ("fields", "free", "item", "kind", "listed", "optional", "path", "required", "where")

    def __init__(self, path: str, kind: str | None = None, where: str = "", listed: bool = False) -> None:
        self.path = path
        self.kind = kind
        self.where = where
        """The row that made it so, for the message when another row contradicts."""
        self.listed = listed
        """One of our own columns: its kind is given."""
        self.item: Shape | None = None
        self.fields: dict[str, Shape] = {}
        self.optional: dict[str, Any] = {}
        self.required: tuple[str, ...] = ()
        self.free: tuple[str, ...] = ()
        """Fields that are JSON text where they hold an object or a list."""

    @classmethod
    def of(cls, path: str, pattern: Any) -> Shape:
        """The shape of a listed column."""
        if isinstance(pattern, list):
            shape = cls(path, "list", listed=True)
            shape.item = cls.of(f"{path}[]", pattern[0])
            shape.item.optional = _OPTIONAL["messages"]
            return shape
        if isinstance(pattern, dict):
            shape = cls(path, "object", listed=True)
            inside = f"{path}." if path else ""
            shape.fields = {name: cls.of(inside + name, inner) for name, inner in pattern.items()}
            return shape
        return cls(path, pattern, listed=True)

    def widen(self, value: Any, where: str) -> None:
        """Take a value in. Raises where the column cannot hold both it and what was seen before."""
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
                self.item = Shape(f"{self.path}[]")
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
            shape = self.fields.get(name)
            if shape is None:
                if not name or "\0" in name:
                    raise BadRow(where, f"a column called {name!r}, which datasets cannot load: rename it")
                if len(self.fields) >= _MOST_KEYS:
                    what = f"column {self.path} has" if self.path else "the rows have"
                    raise SourceError(
                        f"{where}: {what} more than {_MOST_KEYS:,} different keys; {self._json()}"
                    )
                pattern = self.optional.get(name)
                shape = Shape.of(inside + name, pattern) if pattern else Shape(inside + name)
                self.fields[name] = shape
                if pattern == "difficulty":
                    self.required += (name,)  # rows before that have none are found when they are read again
            if name in self.free and isinstance(inner, dict | list) and shape.kind in (None, "text"):
                shape.kind = "json"  # in Arrow both are text, so rows before it stay as they are
            shape.widen(inner, where)

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
        """The type that `msgspec` checks. Raises ValueError where a key is none that it can take."""
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
        """The Arrow type. Raises SourceError where Parquet has none."""
        import pyarrow as pa

        match self.kind:
            case None:
                name = _CONTAMINATED if self.path.startswith(_CONTAMINATED) else self.path
                return Shape.of(self.path, _ONLY_NULLS.get(name, "text")).arrow()
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
    """The columns of a source, as far as its rows have been read: `take` every row, then `schema`."""

    def __init__(self, json_columns: tuple[str, ...] = ()) -> None:
        self._json = json_columns
        self._read = RowReader(dict[str, Any])
        self._like_before: Any = None
        self._shape: Shape | None = None
        self._given: set[str] = set()
        self.format: Format = "other"
        self.news = 0
        """Rows that were not like those before them: as long as this stays, the schema does."""
        self.info_is_text = 0
        """Rows whose `info` is a JSON string of an object, as some producers store it. It is published as the object."""

    def take(self, row: Row) -> dict[str, Any]:
        """A row as the schema takes it. Raises `BadRow`, or `SourceError` where it contradicts one before it."""
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
        """The msgspec type of a row that is like those before it; None where there is none."""
        return self._like_before

    @property
    def json_text(self) -> list[str]:
        """The columns that are published as JSON text."""
        return [name for name, shape in self._fields().items() if shape.kind == "json"]

    def _learn(self, where: str, values: dict[str, Any]) -> None:
        if self._shape is None:
            self._shape = self._begin(values)
            if self.format == "evals" and isinstance(values["info"], str):
                values["info"] = _object(where, values["info"])
                self.info_is_text += 1
        self.news += 1
        self._given.update(values)
        try:
            self._shape.widen(values, where)
            self._like_before = self._shape.decoded_as()
        except RecursionError:
            raise BadRow(where, "nested too deeply") from None
        except ValueError:
            self._like_before = None  # a key that msgspec cannot take: every row is looked at value by value

    def _begin(self, first: dict[str, Any]) -> Shape:
        """Which of our formats this is, by the columns of the first row."""
        patterns: dict[str, Any] = {}
        if {"example_id", "prompt", "completion", "info"} <= first.keys():
            self.format, patterns = "evals", _EVALS
        elif first.keys() >= _SYNTHETIC.keys() and isinstance(first["prompt"], str):
            self.format, patterns = "synthetic", _SYNTHETIC
        shape = Shape.of("", patterns)
        shape.optional = _OPTIONAL.get(self.format, {})
        shape.required = _REQUIRED.get(self.format, ())
        is_verdict = self.format == "other" and first.keys() >= _VERDICT_ROW
        shape.free = _OF_A_VERDICT if is_verdict else _FREE_KEYS
        for name in self._json:
            if name in shape.fields and shape.fields[name].kind != "text":
                raise SourceError(f"--json-columns {name}: the column has a type of its own in these rows")
            shape.fields[name] = Shape(name, "json")
        return shape

    def saw(self, batch: Any) -> None:
        """Take note of the columns that have a value in these rows, as far as none was known before."""
        self._given.update(name for name in self.missing if batch.column(name).null_count < len(batch))

    @property
    def missing(self) -> list[str]:
        """Listed columns that no row has. They are published as nulls."""
        return [name for name in self._fields() if name not in self._given]

    def _fields(self) -> dict[str, Shape]:
        return self._shape.fields if self._shape is not None else {}

    def schema_so_far(self) -> Any:
        """The Arrow schema for the rows up to here; None where there can be none without more of them."""
        try:
            return self.schema()
        except SourceError:
            return None

    def schema(self) -> Any:
        """The Arrow schema: the listed columns first, then the others in the order in which they appeared."""
        import pyarrow as pa

        unknown = [name for name in self._json if name not in self._given]
        if unknown:
            raise SourceError(f"--json-columns {unknown[0]}: no row has this column")
        if not self._fields():
            raise SourceError("the rows have no columns: there is nothing to publish")
        return pa.schema([(name, shape.arrow()) for name, shape in self._fields().items()])


def json_text(value: Any) -> str | None:
    """A value of a column of JSON text. Text stays as it is: it is JSON already where it was published before."""
    return value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode()


def _object(where: str, text: str) -> dict[str, Any]:
    """`info` that is stored as a JSON string."""
    read_info(where, text)  # raises what is wrong with it
    value: dict[str, Any] = msgspec.json.decode(text)
    return value


def describe(schema: Any) -> Iterator[tuple[str, str]]:
    """The columns and their types, for people and for the manifest."""
    for field in schema:
        yield field.name, str(field.type)
