"""What a dataset card is made from.

`CardFacts` is everything that a card may tell; `CardCounts` gathers the part of it that is counted over the rows, one row at a
time, while they are published. Both only hold facts: how they are told is in `card`. Nothing is read from the disk, the Hub
or the clock, so that the same facts make the same card.

A column that is not there, or has another type than ours, is not counted: what the card then says is that it is not recorded.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from kernelmill.curate.length_report import LengthReport
from kernelmill.errors import BadRow
from kernelmill.rows import Row, RowReader, read_info

Kind = Literal["raw", "filtered", "unique", "synthetic", "other"]

MOST_VALUES = 1000
"""Different values that are told apart in a column of names. A column that has a new one in every row must not fill the memory."""
OTHERS = "(others)"
_THOUGHTS = ("reasoning", "reasoning_content")


class SplitFacts(Struct, frozen=True):
    """One split as it is published."""

    name: str
    rows: int
    files: tuple[str, ...]
    """Its data files inside the dataset, or patterns of them, as the Hub's `data_files` takes them: `data/train-*.parquet`."""


class ColumnFacts(Struct, frozen=True):
    name: str
    type: str
    """For people: `string`, `int64`, `list<struct<role: string, …>>`."""


class _Seen(Struct, gc=False):
    """The columns that are counted. Of any type: a row of an unknown kind may have them otherwise."""

    reward: Any = None
    difficulty: Any = None
    rater: Any = None
    writer: Any = None
    task: Any = None
    info: Any = None
    module_name: Any = None
    licenses: Any = None
    prompt: Any = None
    completion: Any = None
    verdict: Any = None


class CardCounts:
    """Counts what the card tells of the rows. Holds 24 bytes a row, and about 100 a module name."""

    def __init__(self) -> None:
        self._read = RowReader(_Seen)
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
        """Rows of each licence; a row with two counts under both."""
        self.evaluators: Counter[str] = Counter()
        self.devices: Counter[str] = Counter()
        self.with_thoughts = 0
        """Rows with thoughts in a field of their own, or in `<think>`."""
        self.with_licences = 0

    @property
    def modules(self) -> int:
        """Different module names."""
        return len(self._modules)

    def add(self, row: Row) -> None:
        """Count one published row. Raises `BadRow` where it is not a JSON object."""
        self._count(row.where, self._read(row))

    def add_values(self, where: str, values: Mapping[str, Any]) -> None:
        """Count one published row that has been decoded already."""
        self._count(where, _Seen(*map(values.get, _Seen.__struct_fields__)))

    def _count(self, where: str, seen: _Seen) -> None:
        self.rows += 1
        if isinstance(seen.reward, float | int) and not isinstance(seen.reward, bool):
            self.rewards.append(seen.reward)
        for value, counter in (
            (seen.difficulty, self.difficulties),
            (seen.rater, self.raters),
            (seen.writer, self.writers),
            (seen.task, self.tasks),
        ):
            if value is not None:
                _tally(counter, value)
        if (name := _module_name(where, seen)) is not None:
            # The hash alone, in 64 bits: two names of a million share one once in thirty million datasets.
            self._modules.add(hash(name))
        if isinstance(seen.licenses, list) and seen.licenses:
            self.with_licences += 1
            for licence in seen.licenses:
                _tally(self.licences, licence)
        if seen.prompt is not None:
            self.prompt_chars.append(_characters(seen.prompt)[0])
        if seen.completion is not None:
            characters, thoughts = _characters(seen.completion)
            self.completion_chars.append(characters)
            self.with_thoughts += thoughts
        if isinstance(seen.verdict, dict) and isinstance(made_on := seen.verdict.get("env"), dict):
            for name, counter in (("evaluator", self.evaluators), ("gpu", self.devices)):
                if made_on.get(name) is not None:
                    _tally(counter, made_on[name])


def _tally(counter: Counter[str], value: Any) -> None:
    if isinstance(value, str):
        counter[value if value in counter or len(counter) < MOST_VALUES else OTHERS] += 1


def _module_name(where: str, seen: _Seen) -> str | None:
    name, info = seen.module_name, seen.info
    if name is None and isinstance(info, str):
        try:
            name = read_info(where, info).module_name
        except BadRow:
            return None  # not an `info` of ours
    elif name is None and isinstance(info, dict):
        name = info.get("module_name")
    return name if isinstance(name, str) else None


def _characters(messages: Any) -> tuple[int, bool]:
    """Characters of a text or a list of messages, and whether some of them are thoughts."""
    if isinstance(messages, str):
        return len(messages), False
    if not isinstance(messages, list):
        return 0, False
    total, thoughts = 0, False
    for message in messages:
        if isinstance(message, dict):
            if isinstance(text := message.get("content"), str):
                total += len(text)
                thoughts = thoughts or "</think>" in text
            for name in _THOUGHTS:
                if name in message and isinstance(text := message[name], str):
                    total += len(text)
                    thoughts = thoughts or bool(text)
    return total, thoughts


class CardFacts(Struct, frozen=True, kw_only=True):
    """Everything that a card is made from. What is None or empty is not known, and the card says so."""

    kind: Kind
    """Which of our formats the rows have; a stage that does not change the format (`unique`) makes a kind of its own."""
    no_reasoning: bool = False
    """Whether this is the variant without thoughts (`kernelmill strip`)."""
    name: str
    """What the dataset is called: the last part of the Hub's name, or of the folder's."""
    repo: str | None = None
    """`org/name` on the Hub; None for a folder."""
    splits: tuple[SplitFacts, ...]
    columns: tuple[ColumnFacts, ...]
    counts: CardCounts
    source: dict[str, Any]
    """What was published, as a source's `origin` says it: `kind`, `path`, `revision`; and its `sha256` where known."""
    lineage: tuple[dict[str, Any], ...] = ()
    """The manifests of the stages that the rows went through, first stage first, as they were written."""
    split_policy: dict[str, Any] | None = None
    leakage: dict[str, Any] | None = None
    lengths: LengthReport | None = None
    """The report of `kernelmill lengths --json` on these rows."""
    license: str | None = None
    """The licence of the whole as its publisher declares it, by the Hub's identifier."""
    config: dict[str, Any] = {}
    """The publishing command's own resolved settings."""
    version: str
    """Of kernelmill."""
