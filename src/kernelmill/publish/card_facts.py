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
from kernelmill.rows import read_info

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


class CardCounts:
    """Counts what the card tells of the rows. Holds 24 bytes a row, and about 100 a module name."""

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

    def add_values(self, where: str, values: Mapping[str, Any]) -> None:
        """Count one published row, decoded. Its columns may have any type: a row of an unknown kind may have them otherwise."""
        get = values.get
        self.rows += 1
        reward = get("reward")
        if isinstance(reward, float | int) and not isinstance(reward, bool):
            self.rewards.append(reward)
        _tally(self.difficulties, get("difficulty"))
        _tally(self.raters, get("rater"))
        _tally(self.writers, get("writer"))
        _tally(self.tasks, get("task"))
        if (name := _module_name(where, get("module_name"), get("info"))) is not None:
            # The hash alone, in 64 bits: two names of a million share one once in thirty million datasets.
            self._modules.add(hash(name))
        if isinstance(licences := get("licenses"), list) and licences:
            self.with_licences += 1
            for licence in licences:
                _tally(self.licences, licence)
        if (prompt := get("prompt")) is not None:
            self.prompt_chars.append(_characters(prompt)[0])
        if (completion := get("completion")) is not None:
            characters, thoughts = _characters(completion)
            self.completion_chars.append(characters)
            self.with_thoughts += thoughts
        if isinstance(verdict := get("verdict"), dict) and isinstance(made_on := verdict.get("env"), dict):
            _tally(self.evaluators, made_on.get("evaluator"))
            _tally(self.devices, made_on.get("gpu"))


def _tally(counter: Counter[str], value: Any) -> None:
    if isinstance(value, str):
        counter[value if value in counter or len(counter) < MOST_VALUES else OTHERS] += 1


def _module_name(where: str, name: Any, info: Any) -> str | None:
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
