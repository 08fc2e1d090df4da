"""`kernelmill journal`: list, total and export what was paid for. Reads only, also while a run is going on."""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from kernelmill.errors import SourceError
from kernelmill.llm.client import read_reply
from kernelmill.llm.journal import Call, JournalReader
from kernelmill.progress import count, money


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="kernelmill journal", description=__doc__)
    parser.add_argument("action", choices=("list", "totals", "export"), nargs="?", default="totals")
    parser.add_argument(
        "journals", nargs="*", type=Path, metavar="FILE", help="default: outputs/*.journal.sqlite"
    )
    parser.add_argument(
        "--last", type=int, default=20, metavar="N", help="list: the newest N calls (default 20)"
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="export: JSONL to write (default: standard output)"
    )
    options = parser.parse_args(arguments)
    journals = options.journals or sorted(Path("outputs").glob("*.journal.sqlite"))
    if not journals:
        raise SourceError("no journal here (outputs/*.journal.sqlite): name one")
    if options.action == "export":
        _export(journals, options.output)
        return 0
    console = Console(markup=False, highlight=False)
    for path in journals:
        with JournalReader(path) as journal:
            if options.action == "list":
                print(path, *_listed(journal, options.last), sep="\n")
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
    """A line a call, for eyes and for grep."""
    for call in journal.calls(last):
        reply = read_reply(call.response)
        text = " ".join((reply.text or reply.refusal or "").split())
        yield (
            f"{_when(call)}  {call.stage}  {call.model}  try {call.attempt + 1}  {call.seconds:.1f} s  "
            f"{_known(call.tokens_in)} in, {_known(call.tokens_out)} out  {money(call.cost)}  "
            f"[{reply.finish}] {text if len(text) <= 100 else text[:100] + '…'}"
        )


def _known(tokens: int | None) -> str:
    return "?" if tokens is None else str(tokens)


def _when(call: Call) -> str:
    return datetime.datetime.fromtimestamp(call.at, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")


def _export(journals: list[Path], output: Path | None) -> None:
    if output is None:
        for line in _lines(journals):
            sys.stdout.write(line)
        return
    temporary = output.with_name(f".{output.name}.tmp")
    output.parent.mkdir(parents=True, exist_ok=True)
    with temporary.open("w", encoding="utf-8") as file:
        file.writelines(_lines(journals))
    temporary.replace(output)


def _lines(journals: list[Path]) -> Iterator[str]:
    for path in journals:
        with JournalReader(path) as journal:
            for call in journal.calls():
                row: dict[str, Any] = {"journal": path.name, **call._asdict()}
                row["request"], row["response"] = json.loads(call.request), json.loads(call.response)
                yield json.dumps(row, ensure_ascii=False) + "\n"
