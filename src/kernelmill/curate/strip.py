"""`kernelmill strip`: every assistant message becomes its answer and nothing else.

All answer styles are read (`kernelmill.answers`); rows without one clear answer are rejected with the reason, and the
command fails if they are more than the user allows. Everything but the assistant messages stays as it was. Stripping what
is stripped changes nothing.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from kernelmill.answers import Answer, NoAnswer, read_answer
from kernelmill.config import StripSettings
from kernelmill.errors import BadRow
from kernelmill.row_stage import run_row_stage
from kernelmill.rows import Drop, Row, RowReader

_THOUGHTS = ("reasoning", "reasoning_content")


class Strip:
    """The stage. Does not touch the prompt, nor messages that are not the assistant's."""

    scans = False

    def __init__(self, style: str) -> None:
        self._style = style
        self._read = RowReader(dict[str, Raw])
        self._messages = msgspec.json.Decoder(list[dict[str, Any]])
        self._styles: Counter[str] = Counter()

    def scan(self, row: Row) -> None:
        """One pass is enough."""

    def decide(self) -> None:
        """Every row is decided by itself."""

    def take(self, row: Row) -> bytes | Drop:
        columns = self._read(row)
        if "completion" not in columns:
            raise BadRow(row.where, "the column is missing", "$.completion")
        try:
            messages = self._messages.decode(columns["completion"])
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
            self._styles[answer.style] += 1
            self._rewrite(message, answer)
        columns["completion"] = Raw(msgspec.json.encode(messages))
        return msgspec.json.encode(columns)

    def _rewrite(self, message: dict[str, Any], answer: Answer) -> None:
        thoughts = next((message[name] for name in _THOUGHTS if message.get(name)), answer.thoughts)
        for name in _THOUGHTS:
            message.pop(name, None)
        code = answer.code
        if self._style == "fence":
            message["content"] = f"```python\n{code}\n```"
        elif self._style == "begin_python":
            message["content"] = f"BEGIN_PYTHON\n{code}\nEND_PYTHON"
        else:
            message["content"] = f"<answer>{code}</answer>"
            if self._style == "reasoning_content" and thoughts:
                message["reasoning_content"] = thoughts

    def summary(self) -> list[tuple[str, str]]:
        return [("styles", ", ".join(f"{style} {number:,}" for style, number in self._styles.most_common()))]

    def details(self) -> dict[str, Any]:
        return {"styles_read": dict(self._styles)}


def strip(settings: StripSettings) -> None:
    output = settings.output or _beside(settings.source)
    run_row_stage("strip", settings, Strip(settings.style), output, settings.max_rejected)


def _beside(source: str) -> Path:
    """`outputs/x.jsonl` → `outputs/x-no-reasoning.jsonl`; what is not a local file goes to `outputs/`."""
    path = Path(source).expanduser()
    folder = path.parent if path.is_file() else Path("outputs")
    stem = path.name.removesuffix(".gz").removesuffix(".zst").removesuffix(".jsonl").removesuffix(".parquet")
    return folder / f"{stem}-no-reasoning.jsonl"
