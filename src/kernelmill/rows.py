"""The row formats that other people's tools depend on, and the row itself.

A `Row` is the bytes of one JSON object and the place it came from. Stages decode only what they need from
it (`decode`), and write it back either unchanged or with columns added at the end (`with_columns`): a value
that a stage does not own is never parsed and written again, so it cannot change.

Reading is tolerant: columns that a stage does not need may be missing, `info` may be a JSON string, and
what was odd is counted (`oddities`). A column that is there must have its type. Does not repair rows.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Generic, Literal, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from kernelmill.errors import BadRow

T = TypeVar("T")
Difficulty = Literal["low", "medium", "high"]


class Row(Struct, frozen=True, gc=False):
    """One row of a source."""

    index: int
    """Position in the source, from 0."""
    where: str
    """For people: `file:line`, or `file: row n` for Parquet."""
    raw: bytes
    """One JSON object, no line end."""


class Message(Struct):
    """One chat message. Thoughts stand in `reasoning` or `reasoning_content`, or inside the content."""

    role: str
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None


class Info(Struct):
    module_name: str
    python_code: str
    triton_code: str | None = None


class EvalsRow(Struct):
    """An evaluated sample (SCHEMA 3): a prompt, what a model answered, and the reward it earned.

    The columns up to `info` are needed by every stage; the rest may be missing.
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


class _LooseEvalsRow(EvalsRow):
    info: Info | str  # type: ignore[assignment]  # some producers store it as a JSON string


EVALS_COLUMNS = EvalsRow.__struct_fields__


class FilteredRow(EvalsRow, kw_only=True):
    """An evals row that was kept and rated (SCHEMA 4). `rater` is ours: `llm:<model>` or `static`."""

    difficulty: Difficulty
    evaluation_raw: str
    rater: str | UnsetType = UNSET


class KernelBookRow(Struct):
    """A row of KernelBook (SCHEMA 2). Only the module itself is needed; the class is `entry_point`."""

    python_code: str
    entry_point: str | None = None
    module_name: str | None = None
    original_triton_code: str | UnsetType | None = UNSET
    triton_code: str | UnsetType | None = UNSET
    repo_name: str | UnsetType | None = UNSET
    synthetic: bool | UnsetType | None = UNSET
    uuid: int | UnsetType | None = UNSET
    licenses: list[str] | UnsetType | None = UNSET
    stars: int | UnsetType | None = UNSET
    sha: str | UnsetType | None = UNSET
    repo_link: str | UnsetType | None = UNSET


class SyntheticRow(Struct):
    """A task specification (SCHEMA 4), with what is known of its source, who wrote it and what was checked."""

    prompt: str
    module_name: str
    python_code: str
    triton_code: str | UnsetType | None = UNSET
    uuid: int | UnsetType | None = UNSET
    name: str | UnsetType = UNSET
    level: int | UnsetType | None = UNSET
    problem_id: int | UnsetType | None = UNSET
    writer: str | UnsetType = UNSET
    checked: str | UnsetType = UNSET


class RejectedRow(Struct, omit_defaults=True):
    """A row that was dropped, and why. `row` is the row itself; `text` stands in for it where it was not JSON."""

    index: int
    where: str
    reason: str
    row: Raw | None = None
    text: str | None = None
    attempts: list[str] | None = None
    """What the model answered each time, where the reason is that none of it could be used."""


_FIELD = re.compile(r"^(?P<problem>.*) - at `(?P<field>[^`]+)`$", re.DOTALL)
_MISSING = re.compile(r"^Object missing required field `(?P<name>[^`]+)`$")


def bad_row(where: str, error: Exception) -> BadRow:
    """A decoding error of msgspec as a `BadRow`: the field's path and what was expected there."""
    problem, field = str(error), None
    if found := _FIELD.match(problem):
        problem, field = found["problem"], found["field"]
    if missing := _MISSING.match(problem):
        field = f"{field or '$'}.{missing['name']}"
        problem = "the column is missing"
    elif isinstance(error, msgspec.ValidationError):
        problem = problem[0].lower() + problem[1:].replace("`", "")
    else:
        problem = f"not a JSON object on one line ({problem})"
    return BadRow(where, problem, field)


class RowReader(Generic[T]):
    """Decodes rows into `T`; errors say where and what was expected."""

    def __init__(self, row_type: type[T]) -> None:
        self._decoder = msgspec.json.Decoder(row_type)

    def __call__(self, row: Row) -> T:
        try:
            return self._decoder.decode(row.raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise bad_row(row.where, error) from None


class EvalsReader:
    """Reads evals rows and counts what was odd in them, each row once however often it is read."""

    def __init__(self) -> None:
        self._read = RowReader(_LooseEvalsRow)
        self._info = msgspec.json.Decoder(Info)
        self._next = 0
        self.oddities: Counter[str] = Counter()

    def __call__(self, row: Row) -> EvalsRow:
        new = row.index >= self._next
        self._next = max(self._next, row.index + 1)
        loose = self._read(row)
        if isinstance(loose.info, str):
            self.oddities["info is a JSON string, not an object"] += new
            try:
                loose.info = self._info.decode(loose.info)
            except msgspec.DecodeError as error:
                raise BadRow(row.where, bad_row("", error).reason, "$.info") from None
        for name in EVALS_COLUMNS[5:]:
            if getattr(loose, name) is UNSET:
                self.oddities[f"no column {name}"] += new
        return loose


_columns = msgspec.json.Decoder(dict[str, Raw])


def with_columns(raw: bytes, columns: dict[str, Any]) -> bytes:
    """The row with columns added at its end. Every other value keeps its bytes.

    A column that the row already has is replaced, and moves to the end.
    """
    if any(f'"{name}"'.encode() in raw for name in columns):
        old = _columns.decode(raw)
        raw = msgspec.json.encode({name: value for name, value in old.items() if name not in columns})
    added = msgspec.json.encode(columns)
    body = raw.strip()[:-1].rstrip()
    return body + (b"" if body == b"{" else b",") + added[1:]
