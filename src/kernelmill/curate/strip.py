"""`kernelmill strip`: reduce every assistant message to its answer.

All answer styles are read (`kernelmill.base.answers`). Rows without one clear answer are rejected with the
reason, and the command fails if there are more of them than the user allows.

Assistant messages in other columns are stripped too: in the prompt of a multi-turn conversation, and in
`turns` of rows made by `synthesize`, also where the column is JSON text. There, a message without a clear
answer becomes empty and the row is kept. Everything except assistant messages stays unchanged. Stripping is
idempotent.

Does not look for thoughts in columns without messages.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from msgspec import Raw, Struct

from kernelmill.base.answers import Answer, NoAnswer, read_answer
from kernelmill.base.rows import Drop, Row, RowReader
from kernelmill.errors import BadRow, SourceError
from kernelmill.flow import COMMANDS, StageResult
from kernelmill.settings.config import load
from kernelmill.settings.fields import MAKERS, NO_REASONING, PublishSettings, StripSettings
from kernelmill.stages.call import call_stage
from kernelmill.stages.row_stage import RowStage, run_row_stage

_THOUGHTS = ("reasoning", "reasoning_content", "thinking")
_THOUGHTS_IN_PARTS = ("reasoning_details", "thinking_blocks")
_TOLD_ON = {"public", "dry_run", "yes"}
"""Settings of `publish` that `strip --hub` also accepts and passes on."""


class _Completion(Struct):
    completion: Raw


_read = RowReader(_Completion)
_messages = msgspec.json.Decoder(list[dict[str, Any]])
_NAME = re.compile(rb'"completion"\s*:\s*')
_columns = msgspec.json.Decoder(dict[str, Raw])
_ASSISTANT = b"assistant"


class Strip(RowStage):
    """The stage. Only changes assistant messages."""

    def __init__(self, style: str) -> None:
        self._style = style
        self._styles: Counter[str] = Counter()

    def take(self, row: Row) -> bytes | Drop:
        """Return the row with only the answers in its assistant messages, and all other values unchanged."""
        completion = bytes(_read(row).completion)
        try:
            messages = _messages.decode(completion)
        except msgspec.DecodeError as error:
            raise BadRow(row.where, f"expected a list of messages ({error})", "$.completion") from None
        number = 0
        for message in messages:
            if message.get("role") != "assistant":
                continue
            number += 1
            content = message.get("content")
            if not isinstance(content, str):
                return Drop(f"assistant message {number} has no text", "no clear answer")
            try:
                answer = read_answer(content)
            except NoAnswer as error:
                return Drop(f"assistant message {number}: {error}", "no clear answer")
            self._styles[answer.style] += 1
            _rewrite(message, answer, self._style)
        if not number:
            return Drop("no assistant message in the completion", "no assistant message")
        new = msgspec.json.encode(messages)
        if row.raw.count(_ASSISTANT) > completion.count(_ASSISTANT) and (
            others := _other_columns(row.raw, self._style)
        ):
            return msgspec.json.encode(_columns.decode(row.raw) | others | {"completion": Raw(new)})
        return _with_completion(row.raw, completion, new)

    def summary(self) -> list[tuple[str, str]]:
        return [("styles", ", ".join(f"{style} {number:,}" for style, number in self._styles.most_common()))]

    def details(self) -> dict[str, Any]:
        return {"styles_read": dict(self._styles)}


def _with_completion(raw: bytes, old: bytes, new: bytes) -> bytes:
    """Replace the value of the column `completion`."""
    name = _NAME.search(raw)
    if name and raw.startswith(old, name.end()):
        end = name.end() + len(old)
        if raw.find(b'"completion"', end) < 0:
            row = memoryview(raw)
            return b"".join((row[: name.end()], new, row[end:]))
    # Slow path: the column's name is escaped or occurs twice, or a nested key has the same name.
    columns = _columns.decode(raw)
    columns["completion"] = Raw(new)
    return msgspec.json.encode(columns)


def _other_columns(raw: bytes, style: str) -> dict[str, Raw]:
    """The other columns with assistant messages that stripping changes, with their new values."""
    changed = {}
    for name, column in _columns.decode(raw).items():
        if name == "completion" or _ASSISTANT not in bytes(column):
            continue
        value = msgspec.json.decode(column)
        text = isinstance(value, str)
        if text:
            try:
                value = msgspec.json.decode(value)
            except msgspec.DecodeError:  # plain text, no messages
                continue
        before = msgspec.json.encode(value)
        _strip_inside(value, style)
        after = msgspec.json.encode(value)
        if after != before:
            changed[name] = Raw(msgspec.json.encode(after.decode()) if text else after)
    return changed


def _strip_inside(value: Any, style: str) -> None:
    """Strip every assistant message in a value, in place.

    A message without a clear answer becomes empty, because its text cannot be told from thoughts.
    """
    if isinstance(value, list):
        for item in value:
            _strip_inside(item, style)
    elif isinstance(value, dict) and value.get("role") == "assistant":
        content = value.get("content")
        try:
            answer = read_answer(content if isinstance(content, str) else "")
        except NoAnswer:
            beside = _take_thoughts(value)
            if content is not None:
                value["content"] = ""
            if style == "reasoning_content" and beside:
                value["reasoning_content"] = beside[0]
        else:
            _rewrite(value, answer, style)
    elif isinstance(value, dict):
        for item in value.values():
            _strip_inside(item, style)


def _take_thoughts(message: dict[str, Any]) -> list[str]:
    """Remove the thoughts in separate fields from a message and return them."""
    if len(message) <= 2:  # only role and content
        return []
    for name in _THOUGHTS_IN_PARTS:
        message.pop(name, None)
    return [thoughts for name in _THOUGHTS if (thoughts := message.pop(name, None))]


def _rewrite(message: dict[str, Any], answer: Answer, style: str) -> None:
    beside = _take_thoughts(message)
    code = answer.code
    if style == "fence":
        message["content"] = f"```python\n{code}\n```"
    elif style == "begin_python":
        message["content"] = f"BEGIN_PYTHON\n{code}\nEND_PYTHON"
    else:
        message["content"] = f"<answer>{code}</answer>"
        if style == "reasoning_content" and (beside or answer.thoughts):
            message["reasoning_content"] = beside[0] if beside else answer.thoughts


def strip(settings: StripSettings) -> StageResult:
    """Evals rows in; the same rows out, assistant messages reduced to answers. `hub` publishes them."""
    if (
        settings.hub
        and settings.dataset_name
        and not settings.hub_target
        and not Path(settings.source).exists()
    ):
        name = getattr(settings, f"{settings.dataset_name}_to")
        raise SourceError(
            f"{settings.source} is not there, and HF_TOKEN is not set: set it to read {name} on the Hub, "
            f"or make the file with kernelmill {MAKERS[settings.dataset_name]}"
        )
    output = settings.output or stripped_path(settings.source)
    if not settings.dry_run:
        return _strip_to(output, settings)
    with TemporaryDirectory(prefix="kernelmill-strip-") as folder:
        return _strip_to(Path(folder) / output.name, settings)._replace(outputs=())


def _strip_to(output: Path, settings: StripSettings) -> StageResult:
    made = run_row_stage("strip", settings, Strip(settings.style), output, settings.max_rejected)
    if settings.hub_target is None:
        return made
    if settings.test_mode:
        print(f"test mode uploads nothing: {settings.hub_target} is as it was")
        return made
    results = call_stage(COMMANDS["publish"], _publishing(output, settings.hub_target, settings)).results
    # Others may change the dataset on the Hub, so no local file can show that this stage is up to date.
    return made._replace(outputs=(), results=results)


def _publishing(output: Path, target: str, settings: StripSettings) -> PublishSettings:
    """The settings to publish the result with: those of `publish` in the same config file, plus our flags."""
    flags: dict[str, Any] = {"source": str(output), "to": target, "test_mode": False}
    flags |= {name: getattr(settings, name) for name in _TOLD_ON & settings.model_fields_set}
    # A manifest can be given in place of a config file, but it has the settings of one stage only.
    file = settings.file if settings.file and settings.file.suffix != ".json" else None
    found = load("publish", PublishSettings, flags, file).model_copy(update={"split": None})
    found.note("source", f"what strip {'would write' if settings.dry_run else 'wrote'}")
    return found


def stripped_path(source: str) -> Path:
    """The default output path: `outputs/x.jsonl` → `outputs/x-no-reasoning.jsonl`.

    The output of a source that is not a local file goes to `outputs/`. The suffix `.test` of a test run's
    file is dropped, because a test run adds its own.
    """
    path = Path(source).expanduser()
    folder = path.parent if path.is_file() else Path("outputs")
    stem = path.name
    for suffix in (".gz", ".zst", ".jsonl", ".parquet", ".test"):
        stem = stem.removesuffix(suffix)
    return folder / f"{stem}{NO_REASONING}.jsonl"
