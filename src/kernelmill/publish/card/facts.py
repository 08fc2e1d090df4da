"""The facts that a dataset card is built from.

`CardFacts` holds everything that a card may state. `CardCounts` collects the part that is counted over the
rows, one batch at a time, while they are published. Both hold facts only; `card.card` turns them into text.
Reads nothing from disk, the Hub or the clock, so that the same facts give the same card.

A column that is missing or has an unexpected type is not counted. The card then says that it is not recorded.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import accumulate
from operator import sub
from typing import Any, Literal

import msgspec
from msgspec import Struct

from kernelmill.base.rows import read_info
from kernelmill.curate.length_report import LengthReport
from kernelmill.errors import BadRow

Kind = Literal["raw", "filtered", "unique", "synthetic", "other"]

MOST_VALUES = 1000
"""Maximum number of distinct values counted per column, so that a column with a new value in every row does
not fill the memory."""
OTHERS = "(others)"
_THOUGHTS = ("reasoning", "reasoning_content")


class SplitFacts(Struct, frozen=True):
    """One published split."""

    name: str
    rows: int
    files: tuple[str, ...]
    """Its data files inside the dataset, or patterns in the format of the Hub's `data_files`:
    `data/train-*.parquet`."""


class ColumnFacts(Struct, frozen=True):
    name: str
    type: str
    """Human-readable type: `string`, `int64`, `list<struct<role: string, …>>`."""
    json: bool = False
    """Whether the column holds JSON text."""


class CardCounts:
    """Counts over the rows for the card. Holds 24 bytes per row and about 100 per module name."""

    def __init__(self) -> None:
        self._modules: set[int] = set()
        self.rows = 0
        self.rewards = array("d")
        self.prompt_chars = array("q")
        """Characters of all messages of the prompt, in rows that have one."""
        self.completion_chars = array("q")
        """Characters of all messages of the completion, thoughts included, in rows that have one."""
        self.difficulties: Counter[str] = Counter()
        self.raters: Counter[str] = Counter()
        self.writers: Counter[str] = Counter()
        self.tasks: Counter[str] = Counter()
        self.licences: Counter[str] = Counter()
        """Rows by licence. A row with two licences counts for both."""
        self.evaluators: Counter[str] = Counter()
        self.devices: Counter[str] = Counter()
        self.with_thoughts = 0
        """Rows with thoughts in a separate field or in `<think>`."""
        self.with_licences = 0

    @property
    def modules(self) -> int:
        """Number of distinct module names."""
        return len(self._modules)

    def add(self, batch: Any) -> None:
        """Count the rows of an Arrow record batch.

        Columns may have any type, since rows may be of an unknown kind.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        get = columns.get
        self.rows += len(batch)
        reward = get("reward")
        if reward is not None and (pa.types.is_floating(reward.type) or pa.types.is_integer(reward.type)):
            self.rewards.extend(reward.drop_null().to_pylist())
        _tally(self.difficulties, get("difficulty"))
        _tally(self.raters, get("rater"))
        _tally(self.writers, get("writer"))
        _tally(self.tasks, get("task"))
        names = _module_names(len(batch), columns)
        # Only 64-bit hashes are kept: of a million names, two share one in one of thirty million datasets.
        self._modules.update(hash(name) for name in names if isinstance(name, str))
        if (licences := get("licenses")) is not None and pa.types.is_list(licences.type):
            self.with_licences += sum(map(bool, pc.list_value_length(licences).to_pylist()))
            _tally(self.licences, licences.flatten())
        if (prompt := get("prompt")) is not None:
            self.prompt_chars.extend(_characters(prompt))
        if (completion := get("completion")) is not None:
            self.completion_chars.extend(_characters(completion))
            self.with_thoughts += sum(map(bool, _by_row(completion, _thoughtful)))
        made_on = [*_environments(get("verdict"))]
        _count(self.evaluators, Counter(env.evaluator for env in made_on if isinstance(env.evaluator, str)))
        _count(self.devices, Counter(env.gpu for env in made_on if isinstance(env.gpu, str)))


def _field(column: Any, name: str) -> Any:
    """One field of a struct column; None where the column or the field does not exist."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if column is None or not pa.types.is_struct(column.type) or column.type.get_field_index(name) < 0:
        return None
    return pc.struct_field(column, column.type.get_field_index(name))


def _is_text(column: Any) -> bool:
    import pyarrow as pa

    return column is not None and pa.types.is_string(column.type)


def _tally(counter: Counter[str], column: Any) -> None:
    import pyarrow.compute as pc

    if _is_text(column):
        values, counts = pc.value_counts(column.drop_null()).flatten()
        _count(counter, dict(zip(values.to_pylist(), counts.to_pylist(), strict=True)))


def _count(counter: Counter[str], found: Mapping[str, int]) -> None:
    for value, count in found.items():
        counter[value if value in counter or len(counter) < MOST_VALUES else OTHERS] += count


class _Environment(Struct):
    evaluator: Any = None
    gpu: Any = None


class _Judged(Struct):
    env: _Environment


_judged = msgspec.json.Decoder(_Judged)


def _environments(verdicts: Any) -> Iterator[_Environment]:
    """Yield the environment of each verdict, stored as an object or as JSON text.

    Other values are skipped.
    """
    for value in [] if verdicts is None else verdicts.drop_null().to_pylist():
        with suppress(msgspec.DecodeError, RecursionError):
            found = _judged.decode(value) if isinstance(value, str) else msgspec.convert(value, _Judged)
            yield found.env


def _module_names(rows: int, columns: Mapping[str, Any]) -> list[Any]:
    """The name of each row's module: the problem's, else the class's, from a column or from `info`."""
    found: list[Any] = [None] * rows
    info: Any = columns.get("info")
    inside = [*map(_name_in_text, info.to_pylist())] if _is_text(info) else _field(info, "module_name")
    # Same order as in `rows.Named`.
    for column in (*map(columns.get, ("problem_name", "name", "entry_point", "module_name")), inside):
        if column is not None and None in found:
            values = column if isinstance(column, list) else column.to_pylist()
            found = [value if name is None else name for name, value in zip(found, values, strict=True)]
    return found


def _name_in_text(info: str | None) -> str | None:
    try:
        return None if info is None else read_info("", info).module_name
    except BadRow:
        return None  # another format of `info`


def _characters(column: Any) -> list[int]:
    """Number of characters of a text or a list of messages, for each non-null row; 0 for other types."""
    import pyarrow.compute as pc

    if _is_text(column):
        lengths: list[int] = pc.utf8_length(column.drop_null()).to_pylist()
        return lengths
    return _by_row(column, _lengths)


def _by_row(column: Any, count: Callable[[Any], list[int]]) -> list[int]:
    """The sum of `count` over the messages of each non-null row."""
    import pyarrow as pa

    column = column.drop_null()
    if not pa.types.is_list(column.type) or not pa.types.is_struct(column.type.value_type):
        return [0] * len(column)
    up_to = [0, *accumulate(count(column.values))]
    ends = [up_to[offset] for offset in column.offsets.to_pylist()]
    return [*map(sub, ends[1:], ends)]


def _lengths(messages: Any) -> list[int]:
    import pyarrow.compute as pc

    texts = [_field(messages, name) for name in ("content", *_THOUGHTS)]
    lengths = [pc.utf8_length(text).to_pylist() for text in texts if _is_text(text)]
    return [sum(filter(None, of_one)) for of_one in zip(*lengths, strict=True)] or [0] * len(messages)


def _thoughtful(messages: Any) -> list[int]:
    """1 for each message with thoughts, 0 for the others."""
    found = [0] * len(messages)
    if _is_text(content := _field(messages, "content")):
        # pyarrow's substring search takes five times as long.
        found = [int(text is not None and "</think>" in text) for text in content.to_pylist()]
    for name in _THOUGHTS:
        if _is_text(text := _field(messages, name)):
            found = [*map(max, found, map(int, map(bool, text.to_pylist())))]
    return found


class CardFacts(Struct, frozen=True, kw_only=True):
    """Everything that a card is built from. None or empty means unknown, and the card says so."""

    kind: Kind
    """The kind of rows: their format, or `unique`, which has its own kind although it does not change the
    format."""
    no_reasoning: bool = False
    """Whether this is the variant without reasoning (`kernelmill strip`)."""
    name: str
    """Name of the dataset: the last part of its Hub name or folder."""
    repo: str | None = None
    """`org/name` on the Hub; None for a folder."""
    splits: tuple[SplitFacts, ...]
    columns: tuple[ColumnFacts, ...]
    counts: CardCounts
    source: dict[str, Any]
    """The published source: its `origin` (`kind`, `path`, `revision`), and its `sha256` where known."""
    lineage: tuple[dict[str, Any], ...] = ()
    """The manifests of the stages that the rows went through, first stage first."""
    split_policy: dict[str, Any] | None = None
    leakage: dict[str, Any] | None = None
    lengths: LengthReport | None = None
    """The report of `kernelmill lengths --json` for these rows."""
    license: str | None = None
    """The licence that the publisher declares for the whole dataset, as a Hub identifier."""
    config: dict[str, Any] = {}
    """The resolved settings of `publish`."""
    version: str
    """Version of kernelmill."""
