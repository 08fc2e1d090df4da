"""`kernelmill journal`: list, total and export what was paid for. Reads only, also while a run is going on."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from kernelmill.base.terminal import count, money, plain
from kernelmill.base.whole_file import replacing
from kernelmill.errors import ConfigError, OutputError, SourceError
from kernelmill.llm.client import read_reply
from kernelmill.llm.journal import Call, JournalReader
from kernelmill.settings.arguments import Parser
from kernelmill.settings.options import ToolSettings, argument, option

_ACTIONS = ("list", "totals", "export")


@dataclass(frozen=True, kw_only=True)
class JournalSettings(ToolSettings):
    """`kernelmill journal`: list, total and export what was paid for. Reads only, also while a run is going on."""

    usage = "kernelmill journal [list|totals|export] [FILE …] [--last N] [-o FILE]"
    abbreviations = True
    what: tuple[str, ...] = argument(
        "what to do (default: totals), then the journals (default: outputs/*.journal.sqlite)", "FILE", ()
    )
    last: int = option(20, "list: the newest N calls (default 20)", least=1)
    output: Path | None = option(None, "export: JSONL to write (default: standard output)", flag="-o")

    @classmethod
    def load(cls, parser: Parser, arguments: list[str]) -> JournalSettings:
        """Allow flags between the action and the journals."""
        return cls.of(parser.parse_intermixed_args(arguments))


def main(options: JournalSettings) -> int:
    """`kernelmill journal`: journals in; a list, totals or JSONL of their calls out."""
    names = options.what
    action, names = (names[0], names[1:]) if names and names[0] in _ACTIONS else ("totals", names)
    if options.output is not None and action != "export":
        raise ConfigError(f"-o is for export, and this is {action}: kernelmill journal export -o FILE")
    journals = [Path(name) for name in names] or sorted(Path("outputs").glob("*.journal.sqlite"))
    if not journals:
        raise SourceError("no journal here (outputs/*.journal.sqlite): name one")
    if action == "export":
        _export(journals, options.output)
        return 0
    console = Console(markup=False, highlight=False)
    for path in journals:
        with JournalReader(path) as journal:
            if action == "list":
                print(path, *map(plain, _listed(journal, options.last)), sep="\n")
            else:
                console.print(_totals(path, journal))
    return 0


def _totals(path: Path, journal: JournalReader) -> Table:
    table = Table(title=str(path), title_justify="left")
    for name in ("stage", "model", "questions", "calls", "tokens in", "tokens out", "reasoning", "cost"):
        table.add_column(name, justify="left" if name in ("stage", "model") else "right")
    for line in journal.totals():
        cost = money(line.cost) if line.cost is not None else "unknown"
        if line.cost is not None and line.unknown_cost:
            cost += f" + {line.unknown_cost:,} unknown"
        tokens = (line.tokens_in, line.tokens_out, line.tokens_reasoning)
        table.add_row(
            line.stage, line.model, f"{line.questions:,}", f"{line.calls:,}",
            *("unknown" if number is None else count(number) for number in tokens), cost,
        )  # fmt: skip
    return table


def _listed(journal: JournalReader, last: int) -> Iterator[str]:
    """One line per call, readable and greppable. An answer that cannot be parsed is shown raw."""
    for call in _sound(journal.calls(last)):
        try:
            reply = read_reply(call.response)
            text, finish = reply.text or reply.refusal or "", reply.finish
        except (ValueError, RecursionError):
            text, finish = call.response, "no chat completion"
        text = " ".join(text.split())
        yield (
            f"{_when(call)}  {call.stage}  {call.model}  try {call.attempt + 1}  {call.seconds:.1f} s  "
            f"{_known(call.tokens_in)} in, {_known(call.tokens_out)} out  {money(call.cost)}  "
            f"[{finish}] {text if len(text) <= 100 else text[:100] + '…'}"
        )


def _sound(calls: Iterator[Call]) -> Iterator[Call]:
    """Check the field types of calls: SQLite allows any value in any column. Raises `SourceError`."""
    for call in calls:
        response: str | bytes = call.response
        text = response.decode("utf-8", "replace") if isinstance(response, bytes) else response
        try:
            yield msgspec.convert(tuple(call._replace(response=text)), Call)
        except msgspec.ValidationError as error:
            raise SourceError(f"the journal is damaged (call {call.key}: {error})") from None


def _known(tokens: int | None) -> str:
    return "?" if tokens is None else str(tokens)


def _when(call: Call) -> str:
    try:
        return datetime.datetime.fromtimestamp(call.at, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return "at no known time"


def _export(journals: list[Path], output: Path | None) -> None:
    if output is None:
        for line in _lines(journals):
            sys.stdout.write(line.decode())
        return
    try:
        _check_output(journals, output)
        output.parent.mkdir(parents=True, exist_ok=True)
        with replacing(output) as file:
            file.writelines(_lines(journals))
    except OSError as error:
        raise OutputError(f"{output}: cannot be written ({error.strerror})") from error


def _check_output(journals: list[Path], output: Path) -> None:
    """Refuse to overwrite a journal or anything that is not a plain file."""
    if output.is_dir():
        raise OutputError(f"{output} is a folder: name a file, such as {output / 'calls.jsonl'}")
    parts = [path.with_name(path.name + end) for path in journals for end in ("", "-wal", "-shm")]
    if any(part.resolve() == output.resolve() for part in parts):
        raise OutputError(f"{output} is the journal itself: name another file")
    if not output.exists():
        return
    if not output.is_file():
        raise OutputError(f"{output} is not a plain file: leave -o out for standard output")
    with output.open("rb") as file:
        if file.read(16) == b"SQLite format 3\0":
            raise OutputError(f"{output} is a database, perhaps a journal: name another file")


def _lines(journals: list[Path]) -> Iterator[bytes]:
    for path in journals:
        with JournalReader(path) as journal:
            for call in _sound(journal.calls()):
                row: dict[str, Any] = {"journal": path.name, **call._asdict()}
                row["request"], row["response"] = _body(call.request), _body(call.response.encode())
                yield msgspec.json.encode(row) + b"\n"


def _body(body: bytes) -> Any:
    """A request or response body as JSON, or as text where it is not JSON."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return body.decode("utf-8", "replace")
