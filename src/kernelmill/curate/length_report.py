"""The report of `kernelmill lengths`, computed from the token count of every row.

Percentiles are nearest-rank: the smallest length that at least that percentage of the rows do not exceed.
They are lengths that occur in the data, never rounded down. Works on counts only; does not read rows.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from msgspec import Struct

from kernelmill.base.bar_chart import terminal_bars
from kernelmill.base.terminal import duration, plain
from kernelmill.tokens.chat_rows import Reasoning

VERSION = 1
PERCENTILES = ("50", "75", "90", "95", "99", "99.5", "99.9", "100")
COVERAGES = ("99", "99.5", "100")
LIMITS = tuple(1024 * 2**power for power in range(1, 9))
"""2k to 256k, the common training lengths."""
ROUND_TO = 128
"""Recommended lengths are rounded up to a multiple of this, the tile size of common attention kernels."""


class Tally(Struct):
    """Counts of rows by properties other than length."""

    prompts: int = 0
    """Rows whose last message is not the assistant's. Their lengths include the generation prompt."""
    with_thoughts: int = 0
    thoughts_left_out: int = 0
    """Rows whose thoughts the template omits."""
    answers: int = 0
    """Rows with an assistant message that has text."""
    unclear: int = 0
    """Of these, rows without one clear answer block: the end of the message counts as the end of the
    answer."""
    changed: int = 0
    """Of these, rows whose answer the template rewrites, so that it is not found: the end of the row
    counts."""

    def add(self, other: Tally) -> None:
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class LongRow(Struct):
    tokens: int
    where: str
    name: str


class Bucket(Struct):
    low: int
    high: int
    """Exclusive upper bound."""
    rows: int

    @property
    def label(self) -> str:
        return f"{self.low:,} to {self.high - 1:,}"


class Limit(Struct):
    """The effect of a `seq_len` on the rows."""

    seq_len: int
    rows_over: int
    answers_cut: int


class Recommended(Struct):
    coverage: str
    """Minimum percentage of rows that fit."""
    seq_len: int
    rows_over: int
    answers_cut: int
    sequences: int
    """Number of sequences after best-fit packing, longest row first. Longer rows are truncated."""
    packed: float
    """Share of non-padding tokens in the packed sequences."""
    padded: float
    """The same share with one row per sequence."""


class LengthReport(Struct):
    version: int
    source: str
    tokenizer: dict[str, Any]
    reasoning: Reasoning
    rows: int
    tokens: int
    shortest: int
    mean: float
    longest: int
    percentiles: dict[str, int]
    buckets: list[Bucket]
    recommended: list[Recommended]
    limits: list[Limit]
    tally: Tally
    longest_rows: list[LongRow]
    round_to: int = ROUND_TO

    @property
    def reasoning_in_words(self) -> str:
        return "counted" if self.reasoning == "count" else "left out"


def report_of(
    lengths: array[int],
    reaches: array[int],
    tally: Tally,
    longest: list[LongRow],
    source: str,
    tokenizer: dict[str, Any],
    reasoning: Reasoning,
) -> LengthReport:
    """Build the report. `reaches` holds, for each row, the number of tokens up to the end of its answer."""
    ordered, reached = sorted(lengths), sorted(reaches)
    tokens, rows = sum(ordered), len(ordered)
    percentiles = {name: percentile(ordered, name) for name in PERCENTILES}
    return LengthReport(
        VERSION, source, tokenizer, reasoning, rows, tokens, ordered[0], round(tokens / rows, 1), ordered[-1], percentiles,
        _buckets(ordered), [_recommended(name, percentiles[name], ordered, reached) for name in COVERAGES],
        [_limit(limit, ordered, reached) for limit in LIMITS], tally, longest,
    )  # fmt: skip


def percentile(ordered: Sequence[int], percent: str) -> int:
    """The nearest-rank percentile.

    Uses integers only: with floats, 99.9% of 1,000 rows could be one row off.
    """
    whole, _, tenth = percent.partition(".")
    thousandths = int(whole) * 10 + int(tenth or 0)
    return ordered[max(1, -(-thousandths * len(ordered) // 1000)) - 1]


def _limit(seq_len: int, ordered: Sequence[int], reached: Sequence[int]) -> Limit:
    return Limit(
        seq_len, len(ordered) - bisect_right(ordered, seq_len), len(reached) - bisect_right(reached, seq_len)
    )


def _recommended(coverage: str, length: int, ordered: Sequence[int], reached: Sequence[int]) -> Recommended:
    seq_len = -(-length // ROUND_TO) * ROUND_TO
    limit = _limit(seq_len, ordered, reached)
    kept = sum(min(length, seq_len) for length in ordered)
    sequences = packed_sequences(ordered, seq_len)
    shares = [round(kept / (number * seq_len), 4) for number in (sequences, len(ordered))]
    return Recommended(coverage, seq_len, limit.rows_over, limit.answers_cut, sequences, *shares)


def packed_sequences(ordered: Sequence[int], seq_len: int) -> int:
    """Count sequences after best-fit packing: each row, longest first, goes where it leaves the least room.

    Bit n of `some` is set if a sequence has n tokens of room. The smallest sufficient room is then the lowest
    set bit from the row's size on.
    """
    rooms = [0] * (seq_len + 1)
    some = 0
    sequences = 0
    for length in reversed(ordered):
        size = min(length, seq_len)
        fitting = some >> size
        if fitting:
            room = size + (fitting & -fitting).bit_length() - 1
            rooms[room] -= 1
            if not rooms[room]:
                some ^= 1 << room
        else:
            room = seq_len
            sequences += 1
        left = room - size
        if left:
            rooms[left] += 1
            some |= 1 << left
    return sequences


def _buckets(ordered: Sequence[int]) -> list[Bucket]:
    """Buckets from the shortest to the longest row.

    The bounds 256, 384, 512, 768, 1,024 … are finer than doubling and the same in every report.
    """
    bounds = [0, *(bound << power for power in range(23) for bound in (256, 384))]
    buckets = []
    for low, high in pairwise(bounds):
        before, upto = bisect_right(ordered, low - 1), bisect_right(ordered, high - 1)
        if upto > 0 and before < len(ordered):
            buckets.append(Bucket(low, high, upto - before))
    return buckets


def printed(report: LengthReport, seconds: float) -> Iterator[str]:
    """Yield the human-readable report, line by line."""
    rows, tally = report.rows, report.tally

    def line(label: str, text: str) -> str:
        return f"{label:<12}{plain(text)}"

    revision = report.tokenizer["revision"]
    yield "lengths"
    yield line("source", report.source)
    yield line("tokenizer", report.tokenizer["name"] + (f" at {revision[:7]}" if revision else ""))
    yield line("reasoning", _reasoning(report))
    yield line("rows", f"{rows:,}  in {duration(seconds)}")
    yield line("tokens", f"{report.tokens:,}")
    yield line("a row", f"{report.shortest:,} to {report.longest:,}, mean {report.mean:,.1f}")
    if tally.prompts:
        yield line(
            "prompts", f"{tally.prompts:,} end before an answer: counted with the words that ask for it"
        )
    if tally.unclear:
        yield line(
            "answers",
            f"{tally.unclear:,} of {tally.answers:,} without one clear block: the message's end counts",
        )
    if tally.changed:
        yield line("answers", f"{tally.changed:,} rewritten by the template: the row's end counts")
    yield ""
    yield from terminal_bars([(bucket.label, bucket.rows) for bucket in report.buckets])
    yield ""
    yield "percentile     tokens"
    for name, value in report.percentiles.items():
        yield f"{name:>10}{value:>11,}"
    yield ""
    yield "covers    seq_len  rows over  answers cut  sequences  filled  unpacked"
    for best in report.recommended:
        yield (
            f"{best.coverage + '%':>6}{best.seq_len:>11,}{best.rows_over:>11,}{best.answers_cut:>13,}"
            f"{best.sequences:>11,}{best.packed:>8.1%}{best.padded:>10.1%}"
        )
    yield f"(multiples of {report.round_to}; packed by best fit, the longest row first; unpacked is a row a sequence)"
    yield ""
    yield "limit    rows over           answers cut"
    for limit in report.limits:
        yield (
            f"{limit.seq_len // 1024:>4}k{limit.rows_over:>13,} {limit.rows_over / rows:>7.2%}"
            f"{limit.answers_cut:>13,} {limit.answers_cut / rows:>7.2%}"
        )
        if not limit.rows_over:
            break
    yield ""
    yield "longest rows"
    for row in report.longest_rows:
        yield f"{row.tokens:>9,}  {plain(row.where)}{f'  {plain(row.name)}' if row.name else ''}"


def _reasoning(report: LengthReport) -> str:
    tally = report.tally
    if report.reasoning == "drop":
        return "left out (--reasoning drop)"
    if not tally.with_thoughts:
        return "counted, but no row has any"
    if tally.thoughts_left_out:
        return (
            f"NOT counted in {tally.thoughts_left_out:,} of the {tally.with_thoughts:,} rows that have some:"
            " this chat template leaves it out"
        )
    return f"counted; {tally.with_thoughts:,} rows have some"
