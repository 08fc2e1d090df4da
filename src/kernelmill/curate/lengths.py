"""`kernelmill lengths`: count tokens per row under a model's chat template, and recommend a `seq_len`.

    tokenizer = find_tokenizer("qwen-embedded")
    report = measure(open_source("rows.jsonl"), tokenizer)

Rows are read once and counted in worker processes. Each row takes eight bytes of memory. A row that cannot be
read, rendered or tokenised is an error that names the row, and no report is made. Writes no rows.
"""

from __future__ import annotations

import heapq
import time
from array import array
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from kernelmill.base.bar_chart import svg_bars
from kernelmill.base.parallel import mapped
from kernelmill.base.rows import TEST_ROWS, Named, Row, row_chunks
from kernelmill.base.terminal import say
from kernelmill.base.whole_file import encoded, write_whole
from kernelmill.curate.length_report import LengthReport, LongRow, Tally, printed, report_of
from kernelmill.errors import BadRow, ConfigError, NotOnHub, OutputError, SourceError
from kernelmill.flow import StageResult
from kernelmill.settings.config import secret
from kernelmill.settings.fields import LengthsSettings
from kernelmill.stages.source_choice import test_mode_source
from kernelmill.store import Source, open_source
from kernelmill.store.progress_source import ProgressSource
from kernelmill.tokens.chat_rows import Chat, ChatReader, Reasoning
from kernelmill.tokens.chat_template import TemplateFailed
from kernelmill.tokens.chat_tokens import ChatTokenizer, load_tokenizer
from kernelmill.tokens.tokenizer_files import TokenizerFiles, find_tokenizer

_CHUNK_ROWS, _CHUNK_BYTES = 500, 1 << 20
_LONGEST = 5


class _Counted(Struct):
    """The counts of one chunk of rows, as sent back by a worker."""

    lengths: bytes
    reaches: bytes
    tally: Tally
    longest: list[LongRow]


def lengths(settings: LengthsSettings) -> StageResult:
    """Rows with chats in; a report of their token counts out, printed and as JSON or SVG."""
    plot, json_path = _beside(settings.plot, settings), _beside(settings.json_path, settings)
    if plot is not None and plot.suffix.lower() != ".svg":
        raise ConfigError(f"--plot {plot}: plots are SVG, so the name must end in .svg")
    files = find_tokenizer(settings.tokenizer, secret("HF_TOKEN"))
    source = ProgressSource(_open(settings), TEST_ROWS if settings.test_mode else None)
    for path in (plot, json_path):
        if path is not None and path.resolve() in {file.path.resolve() for file in source.files}:
            raise OutputError(f"{path} is the source: name another file")
    started = time.monotonic()
    report = measure(source, files, settings.reasoning)
    for line in printed(report, time.monotonic() - started):
        print(line)
    if json_path is not None:
        _write(json_path, encoded(report))
    if plot is not None:
        title = f"Rows by tokens, {report.tokenizer['name']}, reasoning {report.reasoning_in_words}"
        bars = [(bucket.label, bucket.rows) for bucket in report.buckets]
        _write(plot, svg_bars(title, bars, f"{report.rows:,} rows, {report.tokens:,} tokens").encode())
    return StageResult(
        tuple(path for path in (json_path, plot) if path is not None), report.rows, report.rows
    )


def _beside(path: Path | None, settings: LengthsSettings) -> Path | None:
    """The path of a report file; in test mode, one beside the real file."""
    return path.with_suffix(f".test{path.suffix}") if path is not None and settings.test_mode else path


def _open(settings: LengthsSettings) -> Source:
    """Open the source.

    If it is one of our datasets and not on the Hub yet, open the file it is published from.
    """
    token = secret("HF_TOKEN")
    try:
        return open_source(settings.source, settings.split, token)
    except NotOnHub:
        names = ("filtered", "unique", "raw")
        dataset_name = next(
            (
                dataset_name
                for dataset_name in names
                if settings.source == getattr(settings, f"{dataset_name}_to")
            ),
            None,
        )
        path = getattr(settings, f"{dataset_name}_path") if dataset_name else ""
        if dataset_name and settings.test_mode:
            path = test_mode_source(path, named=False) or path
        if not dataset_name or settings.split is not None or not Path(path).expanduser().is_file():
            raise
        say(f"{settings.source} is not on the Hub yet: reading {path}, which it is published from")
        return open_source(path)


def measure(source: Source, tokenizer: TokenizerFiles, reasoning: Reasoning = "count") -> LengthReport:
    """Count the tokens of all rows of a source. Raises `BadRow` for the first row that cannot be counted."""
    loaded = load_tokenizer(tokenizer)  # before any row is read, to fail early on a bad tokenizer
    chunks = row_chunks(source.rows(), _CHUNK_ROWS, _CHUNK_BYTES)
    counts, reaches, tally = array("I"), array("I"), Tally()
    longest: list[LongRow] = []
    for counted in mapped(partial(_count, tokenizer, reasoning), chunks):
        counts.frombytes(counted.lengths)
        reaches.frombytes(counted.reaches)
        tally.add(counted.tally)
        longest = heapq.nlargest(_LONGEST, longest + counted.longest, key=lambda row: row.tokens)
    if not counts:
        raise SourceError(f"{source.name} has no rows: there is nothing to measure")
    about = {**tokenizer.origin, "template_sha256": loaded.template_sha256}
    return report_of(counts, reaches, tally, longest, source.name, about, reasoning)


def _count(files: TokenizerFiles, reasoning: Reasoning, rows: list[Row]) -> _Counted:
    tokenizer = load_tokenizer(files)
    read = ChatReader(reasoning)
    counts, reaches, tally = array("I"), array("I"), Tally()
    for row in rows:
        try:
            count, reach = _count_row(tokenizer, read(row), tally)
        except TemplateFailed as error:
            raise BadRow(row.where, f"the chat template of {files.name} fails on this row: {error}") from None
        counts.append(count)
        reaches.append(reach)
    places = heapq.nlargest(_LONGEST, range(len(rows)), key=counts.__getitem__)
    longest = [LongRow(counts[place], rows[place].where, _name(rows[place])) for place in places]
    return _Counted(counts.tobytes(), reaches.tobytes(), tally, longest)


def _count_row(tokenizer: ChatTokenizer, chat: Chat, tally: Tally) -> tuple[int, int]:
    """Token count of a row, and the number of tokens up to the end of its answer (0 if it has none)."""
    text = tokenizer.render(chat.messages, chat.tools, not chat.answered, chat.variables)
    place = text.rfind(chat.ending) if chat.ending else -1
    end = place + len(chat.ending) if place >= 0 else None
    count, reach = tokenizer.tokens.measure(text, end)
    tally.prompts += not chat.answered
    if chat.thoughts:
        tally.with_thoughts += 1
        # One line is enough: a template keeps or omits all thoughts, but may trim whitespace around them.
        tally.thoughts_left_out += chat.thoughts.strip().split("\n", 1)[0].strip() not in text
    if not chat.ending:
        return count, 0
    tally.answers += 1
    tally.unclear += not chat.clear
    if reach is None:
        tally.changed += 1
        return count, count
    return count, reach


class _NamedRow(Named):
    instance_id: Any = None


_named = msgspec.json.Decoder(_NamedRow)


def _name(row: Row) -> str:
    """The human-readable name of a row; empty where it has none."""
    found = _named.decode(row.raw)
    return found.display_name or (found.instance_id if isinstance(found.instance_id, str) else "")


def _write(path: Path, content: bytes) -> None:
    write_whole(path, content)
    print(f"{'written':<12}{path}")
