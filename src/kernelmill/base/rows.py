"""The row type, and what stages read of the row formats that other people's tools depend on.

A `Row` is the bytes of one JSON object and its origin. Stages decode only the columns they need
(`RowReader`). They write a row back unchanged or with columns added at the end (`with_columns`). A value that
a stage does not own is never decoded and re-encoded, so it cannot change.

Reading is tolerant: columns that a stage does not need may be missing, `info` may be a JSON string, and
oddities are counted (`oddities`). A column that is present must have its type. Does not repair rows.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from kernelmill.errors import BadRow

T = TypeVar("T")
TEST_ROWS = 5
"""Number of rows that a run in test mode reads."""
Difficulty = Literal["low", "medium", "high"]
Label = int | float | str | None
"""An identifier. pandas turns integers into floats in a column with gaps; `SyntheticRow` converts them
back."""


class Row(Struct, frozen=True, gc=False):
    """One row of a source."""

    index: int
    """Position in the source, from 0."""
    where: str
    """Human-readable origin: `file:line`, or `file: row n` for Parquet."""
    raw: bytes
    """One JSON object, without a line end."""
    fault: str | None = None
    """Why the row cannot be used, if its reader found a fault: a Parquet value that JSON cannot hold. `raw`
    has null in its place."""


class Drop(NamedTuple):
    """A stage's decision to reject a row: the reason for this row, and the kind that the summary counts."""

    reason: str
    kind: str


def row_chunks(rows: Iterable[Row], most_rows: int, most_bytes: int) -> Iterator[list[Row]]:
    """Group rows into chunks of `most_rows` rows; a chunk ends earlier once it reaches `most_bytes` bytes."""
    chunk: list[Row] = []
    size = 0
    for row in rows:
        chunk.append(row)
        size += len(row.raw)
        if len(chunk) >= most_rows or size >= most_bytes:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


class Message(Struct):
    """One chat message. Thoughts are in `reasoning`, in `reasoning_content` or inside the content."""

    role: str
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None


class Info(Struct):
    module_name: str
    python_code: str
    triton_code: str | None = None


class Named(Struct):
    """The columns that may hold the name of a row's problem, for every kind of row.

    The class name comes last: in KernelBench's style every class is called `Model`.
    """

    problem_name: Any = None
    """In evals rows made by `synthesize`."""
    name: Any = None
    """In KernelBench's rows and problem files, and in specifications."""
    extra_info: Any = None
    """In RL prompt rows."""
    entry_point: Any = None
    module_name: Any = None
    info: Any = None

    @property
    def display_name(self) -> str:
        """The name of the problem, else of its class; empty where the row has neither."""
        names = (
            self.problem_name,
            self.name,
            _inside(self.extra_info, "problem_name"),
            self.entry_point,
            self.module_name,
            _inside(self.info, "module_name"),
        )
        return next((name for name in names if isinstance(name, str) and name), "")


def _inside(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else getattr(value, name, None)


class EvalsRow(Struct):
    """An evaluated sample: a prompt, a model's answer, and its reward.

    Every stage needs the columns up to `info`; the rest may be missing. `columns` says what they mean, and
    which ones stages add.
    """

    example_id: int
    prompt: list[Message]
    completion: list[Message]
    reward: float
    info: Info
    task: str | UnsetType | None = UNSET
    generation_ms: float | UnsetType | None = UNSET
    scoring_ms: float | UnsetType | None = UNSET
    total_ms: float | UnsetType | None = UNSET
    answer: str | UnsetType | None = UNSET
    speedup_reward: float | UnsetType | None = UNSET
    num_turns: float | UnsetType | None = UNSET
    oai_tools: str | UnsetType | None = UNSET


class NamedEvalsRow(EvalsRow):
    """An evals row with the columns that may hold its problem's name."""

    problem_name: Any = None
    name: Any = None

    @property
    def display_name(self) -> str:
        return Named(self.problem_name, self.name, info=self.info).display_name


class _LooseEvalsRow(NamedEvalsRow):
    info: Info | str  # type: ignore[assignment]  # see read_info


EVALS_COLUMNS = EvalsRow.__struct_fields__


class KernelBookRow(Struct):
    """A KernelBook row. Only `python_code` is required; `entry_point` is the class."""

    python_code: str
    entry_point: str | None = None
    module_name: str | None = None
    original_triton_code: str | UnsetType | None = UNSET
    triton_code: str | UnsetType | None = UNSET
    repo_name: str | UnsetType | None = UNSET
    synthetic: bool | UnsetType | None = UNSET
    uuid: Label | UnsetType = UNSET
    licenses: list[str] | UnsetType | None = UNSET
    stars: int | float | UnsetType | None = UNSET
    sha: str | UnsetType | None = UNSET
    repo_link: str | UnsetType | None = UNSET


class SyntheticRow(Struct):
    """A task specification with its source, its writer and what was checked."""

    prompt: str
    module_name: str
    python_code: str
    triton_code: str | UnsetType | None = UNSET
    uuid: Label | UnsetType = UNSET
    name: str | UnsetType | None = UNSET
    level: Label | UnsetType = UNSET
    problem_id: Label | UnsetType = UNSET
    writer: str | UnsetType = UNSET
    checked: str | UnsetType = UNSET

    def __post_init__(self) -> None:
        self.uuid, self.level, self.problem_id = map(_whole, (self.uuid, self.level, self.problem_id))


def _whole(label: Label | UnsetType) -> Label | UnsetType:
    # From 2 ** 53 on a float represents several integers, and the original one is unknown.
    return int(label) if isinstance(label, float) and label.is_integer() and abs(label) < 2**53 else label


class RejectedRow(Struct, omit_defaults=True):
    """A rejected row and the reason.

    `row` is the row itself; `text` replaces it where the row is not JSON.
    """

    index: int
    where: str
    reason: str
    row: Raw | None = None
    text: str | None = None
    attempts: list[str] | None = None
    """The model's answers, where the row was rejected because none of them was usable."""


_FIELD = re.compile(r"^(?P<problem>.*) - at `(?P<field>[^`]+)`$", re.DOTALL)
_MISSING = re.compile(r"^Object missing required field `(?P<name>[^`]+)`$")


def bad_row(where: str, error: Exception, raw: bytes = b"") -> BadRow:
    """Convert a decoding error to a `BadRow` with the field's path and the expected type.

    `raw` is the input.
    """
    problem, field = str(error), None
    if found := _FIELD.match(problem):
        problem, field = found["problem"], found["field"]
    if missing := _MISSING.match(problem):
        field = f"{field or '$'}.{missing['name']}"
        problem = "the column is missing"
    elif isinstance(error, msgspec.ValidationError):
        problem = problem[0].lower() + problem[1:].replace("`", "")
    elif field is None:
        return BadRow.not_json(where, error, raw)
    return BadRow(where, problem, field)


class RowReader(Generic[T]):
    """Decodes rows into `T`. Errors say where they are and what was expected."""

    def __init__(self, row_type: type[T]) -> None:
        self._decoder = msgspec.json.Decoder(row_type)

    def __call__(self, row: Row) -> T:
        if row.fault is not None:
            raise BadRow(row.where, row.fault)
        try:
            value = self._decoder.decode(row.raw)
            if not row.raw.isascii():
                # Checks UTF-8: msgspec does not validate the strings of columns that are not decoded.
                row.raw.decode()
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise bad_row(row.where, error, row.raw) from None
        return value


_info = msgspec.json.Decoder(Info)


def read_info(where: str, value: Info | str) -> Info:
    """Read a row's `info`: an object, or a JSON string of one, as some producers store it.

    Raises `BadRow`.
    """
    if isinstance(value, Info):
        return value
    try:
        return _info.decode(value)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadRow(where, bad_row("", error).reason, "$.info") from None


class _ModuleColumns(Named):
    """The columns that may hold a row's module.

    Evals rows use `info`, KernelBook rows and specifications `python_code`, KernelBench rows `code`.
    """

    info: Info | str | None = None
    python_code: str | None = None
    code: str | None = None
    entry_point: str | None = None
    module_name: str | None = None
    name: str | None = None


class ModuleCodeReader:
    """Reads the module of any kind of row: its problem's name (may be empty) and its code.

    Raises `BadRow`. For stages that only compare code; `problems.module_rows.ModuleReader` also finds the
    class.
    """

    def __init__(self) -> None:
        self._read = RowReader(_ModuleColumns)

    def __call__(self, row: Row) -> tuple[str, str]:
        columns = self._read(row)
        if columns.info is not None:
            columns.info = info = read_info(row.where, columns.info)
            return columns.display_name, info.python_code
        code = columns.python_code if columns.python_code is not None else columns.code
        if code is None:
            raise BadRow(row.where, "no module (looked in info.python_code, python_code and code)")
        return columns.display_name, code


class EvalsReader:
    """Reads evals rows and counts their oddities, once per row however often it is read."""

    def __init__(self) -> None:
        self._read = RowReader(_LooseEvalsRow)
        self._next = 0
        self.oddities: Counter[str] = Counter()

    def __call__(self, row: Row) -> NamedEvalsRow:
        new = row.index >= self._next
        self._next = max(self._next, row.index + 1)
        loose = self._read(row)
        if isinstance(loose.info, str):
            self.oddities["info is a JSON string, not an object"] += new
        loose.info = read_info(row.where, loose.info)
        for name in EVALS_COLUMNS[5:]:
            if getattr(loose, name) is UNSET:
                self.oddities[f"no column {name}"] += new
        return loose


_object = msgspec.json.Decoder(dict[str, Raw])


def is_json_object(raw: bytes) -> bool:
    """Whether this is one complete JSON object in UTF-8, which can be embedded in another row."""
    try:
        _object.decode(raw)
        raw.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_MARK = re.compile(_STRING + rb"|[{}\[\],]", re.DOTALL)
_KEY = re.compile(rb"\s*(" + _STRING + rb")", re.DOTALL)
_ESCAPED_LETTER = re.compile(rb"\\u00[3-7]")


def with_columns(raw: bytes, columns: dict[str, Any]) -> bytes:
    """Add columns at the end of a row. The bytes of all other columns stay unchanged.

    A column that the row already has is removed first, also where its name is escaped or occurs repeatedly.
    """
    body = raw.strip()[:-1]
    if _may_have(raw, columns):
        body = b"{" + b",".join(member for member in _members(raw) if _name(member) not in columns)
    body = body.rstrip()
    return body + (b"" if body == b"{" else b",") + msgspec.json.encode(columns)[1:]


def _may_have(raw: bytes, names: Iterable[str]) -> bool:
    """Whether the row may have one of these columns.

    Fast; may give false positives, never false negatives.
    """
    if b"\\u00" in raw and _ESCAPED_LETTER.search(raw):
        return True
    return any(f'"{name}"'.encode() in raw or not (name.isidentifier() and name.isascii()) for name in names)


def _members(raw: bytes) -> Iterator[bytes]:
    """The members of the outermost object, `"name": value`, with the whitespace around them."""
    start, depth = raw.index(b"{") + 1, 0
    for mark in _MARK.finditer(raw, start):
        at = mark.start()
        match raw[at : at + 1]:
            case b"{" | b"[":
                depth += 1
            case b"," | b"}" if depth == 0:
                yield raw[start:at]
                start = at + 1
            case b"}" | b"]":
                depth -= 1


def _name(member: bytes) -> str | None:
    """The decoded name of a member; None for the whitespace inside an empty object."""
    key = _KEY.match(member)
    # json, not msgspec: a lone surrogate in a name must not fail here.
    return None if key is None else str(json.loads(key[1].decode("utf-8", "replace"), strict=False))
