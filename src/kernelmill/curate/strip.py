"""`kernelmill strip`: every assistant message becomes its answer and nothing else.

All answer styles are read (`kernelmill.answers`); rows without one clear answer are rejected with the reason, and the
command fails if they are more than the user allows. Everything but the assistant messages stays as it was. Stripping what
is stripped changes nothing.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, Struct

from kernelmill.answers import Answer, NoAnswer, read_answer
from kernelmill.config import StripSettings
from kernelmill.errors import BadRow
from kernelmill.flow import Made
from kernelmill.parallel import Workers
from kernelmill.row_stage import RowStage, Taken, run_row_stage
from kernelmill.rows import Drop, Row, RowReader

_THOUGHTS = ("reasoning", "reasoning_content")


class _Completion(Struct):
    completion: Raw


_read = RowReader(_Completion)
_messages = msgspec.json.Decoder(list[dict[str, Any]])
_NAME = re.compile(rb'"completion"\s*:\s*')
_columns = msgspec.json.Decoder(dict[str, Raw])
WORDS = ("raw", "filtered", "unique")
_CHUNK = 1 << 20
"""Bytes of rows that a worker process is sent at once."""


class Strip(RowStage):
    """The stage. Rows are stripped in processes: each is decided by itself."""

    def __init__(self, style: str) -> None:
        self._style = style
        self._styles: Counter[str] = Counter()

    def take(self, row: Row) -> bytes | Drop:
        return strip_row(row, self._style, self._styles)

    def take_all(self, rows: Iterator[Row]) -> Iterator[Taken]:
        sent: deque[list[Row]] = deque()
        with Workers(_strip_rows) as workers:
            for chunk in _chunks(rows):
                sent.append(chunk)
                for stripped in workers.give((b"\n".join(row.raw for row in chunk), self._style)):
                    yield from self._counted(sent.popleft(), stripped)
            for stripped in workers.rest():
                yield from self._counted(sent.popleft(), stripped)

    def _counted(self, rows: list[Row], stripped: _Stripped) -> Iterator[Taken]:
        taken, styles = stripped
        self._styles += styles
        for row, one in zip(rows, taken, strict=True):
            if one is not None and row.fault is None:
                yield row, one
            else:
                # Here, where its place is known.
                yield from super().take_all(iter([row]))

    def summary(self) -> list[tuple[str, str]]:
        return [("styles", ", ".join(f"{style} {number:,}" for style, number in self._styles.most_common()))]

    def details(self) -> dict[str, Any]:
        return {"styles_read": dict(self._styles)}


_Stripped = tuple[list[bytes | Drop | None], Counter[str]]
"""What became of each row, None for one that cannot be read, and the styles."""


def _chunks(rows: Iterator[Row]) -> Iterator[list[Row]]:
    chunk: list[Row] = []
    size = 0
    for row in rows:
        chunk.append(row)
        size += len(row.raw)
        if size >= _CHUNK:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _strip_rows(work: tuple[bytes, str]) -> _Stripped:
    """Rows as lines: they are sent to another process in one piece."""
    lines, style = work
    styles: Counter[str] = Counter()
    taken: list[bytes | Drop | None] = []
    for raw in lines.split(b"\n"):
        try:
            taken.append(strip_row(Row(0, "", raw), style, styles))
        except BadRow:
            taken.append(None)
    return taken, styles


def strip_row(row: Row, style: str, styles: Counter[str]) -> bytes | Drop:
    """The row with its answers alone, every other byte as it was. Counts the styles that were read."""
    completion = bytes(_read(row).completion)
    try:
        messages = _messages.decode(completion)
    except msgspec.DecodeError as error:
        raise BadRow(row.where, f"expected a list of messages ({error})", "$.completion") from None
    assistants = [message for message in messages if message.get("role") == "assistant"]
    if not assistants:
        return Drop("no assistant message in the completion", "no assistant message")
    for number, message in enumerate(assistants, 1):
        content = message.get("content")
        if not isinstance(content, str):
            return Drop(f"assistant message {number} has no text", "no clear answer")
        try:
            answer = read_answer(content)
        except NoAnswer as error:
            return Drop(f"assistant message {number}: {error}", "no clear answer")
        styles[answer.style] += 1
        _rewrite(message, answer, style)
    stripped = msgspec.json.encode(messages)
    name = _NAME.search(row.raw)
    if name and row.raw.startswith(completion, name.end()) and row.raw.count(b'"completion"') == 1:
        return row.raw[: name.end()] + stripped + row.raw[name.end() + len(completion) :]
    # The column has its name spelt in an unusual way, or twice.
    columns = _columns.decode(row.raw)
    columns["completion"] = Raw(stripped)
    return msgspec.json.encode(columns)


def _rewrite(message: dict[str, Any], answer: Answer, style: str) -> None:
    thoughts = next((message[name] for name in _THOUGHTS if message.get(name)), answer.thoughts)
    for name in _THOUGHTS:
        message.pop(name, None)
    code = answer.code
    if style == "fence":
        message["content"] = f"```python\n{code}\n```"
    elif style == "begin_python":
        message["content"] = f"BEGIN_PYTHON\n{code}\nEND_PYTHON"
    else:
        message["content"] = f"<answer>{code}</answer>"
        if style == "reasoning_content" and thoughts:
            message["reasoning_content"] = thoughts


def strip(settings: StripSettings) -> Made:
    word = "raw" if settings.source == "source" else settings.source
    if word in WORDS:
        settings = settings.model_copy(update={"source": getattr(settings, f"{word}_path")})
    output = settings.output or stripped_path(settings.source)
    return run_row_stage("strip", settings, Strip(settings.style), output, settings.max_rejected)


def stripped_path(source: str) -> Path:
    """`outputs/x.jsonl` → `outputs/x-no-reasoning.jsonl`; what is not a local file goes to `outputs/`."""
    path = Path(source).expanduser()
    folder = path.parent if path.is_file() else Path("outputs")
    stem = path.name.removesuffix(".gz").removesuffix(".zst").removesuffix(".jsonl").removesuffix(".parquet")
    return folder / f"{stem}-no-reasoning.jsonl"
