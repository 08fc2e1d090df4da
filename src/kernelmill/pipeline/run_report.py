"""What a run leaves behind and shows: `run.json`, the table of steps, where the results are, and what to try next.

Does not run anything (`pipeline` does).
"""

from __future__ import annotations

import datetime
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from kernelmill import __version__
from kernelmill.base.terminal import duration, money
from kernelmill.errors import ConfigError

_RAN = ("done", "failed", "stopped")
_WIDE = 200
"""Columns where nobody looks: a pipe or a file has room for whole paths."""


class Step(Struct):
    """One step as `run.json` remembers it."""

    name: str
    stage: str
    status: str = "not reached"
    """`done`, `unchanged`, `failed`, `stopped` (the same command goes on), `not reached`, `left out`."""
    fingerprint: str = ""
    """Of the settings and of everything that is read."""
    outputs: dict[str, str] = {}
    """Each file and its SHA-256."""
    rows_in: int = 0
    rows_out: int = 0
    rejected: int = 0
    seconds: float = 0.0
    cost_usd: float | None = 0.0
    results: dict[str, str] = {}
    """Places to look at, and what is there."""
    config: dict[str, Any] = {}
    reason: str = ""


class Record(Struct):
    """`run.json`."""

    format: int
    version: str = __version__
    config: str = ""
    started: str = ""
    finished: str = ""
    steps: list[Step] = []


def read_record(path: Path, form: int) -> Record:
    """What is remembered; nothing where there is no file yet."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Record)
    except FileNotFoundError:
        return Record(form)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path} is not what a run wrote ({error}): move it away") from None


def now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def show(record: Record, report: Path, next_commands: list[str]) -> None:
    """The end of a run, also of one that failed: then there is nothing to try next but what the error says."""
    # A path must stay in one piece, to be copied: lines that are too long are the terminal's to break.
    console = Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else _WIDE)
    console.print()
    console.print(table(record, report.parent))
    results = {place: what for step in record.steps for place, what in step.results.items()}
    results[str(report)] = "what was done, with settings and hashes"
    width = max(map(len, results))
    print()
    for place, what in results.items():
        print(f"{place:<{width}}  {what}")
    if next_commands:
        print("\nTry next:")
        for line in next_commands:
            word, space, rest = line.partition(" ")
            print(f"  {own_name() if word == 'kernelmill' else word}{space}{rest}")


def table(record: Record, folder: Path) -> Table:
    """A line a step. Files are named from `folder` where they stand below it."""
    priced = any(step.cost_usd is None or step.cost_usd for step in record.steps)
    shown = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    ran = sum(step.seconds for step in record.steps if step.status in _RAN)
    shown.add_column("step")
    for head in ("rows in", "out", "rejected", "time", *(["cost"] if priced else [])):
        shown.add_column(head, justify="right", no_wrap=True)
    shown.add_column("")
    shown.add_column(f"file in {folder}", overflow="fold")
    for step in record.steps:
        known = step.status in ("done", "unchanged") and (step.rows_in or step.rows_out)
        numbers = [f"{n:,}" if known else "" for n in (step.rows_in, step.rows_out, step.rejected)]
        took = duration(step.seconds) if step.status in _RAN else ""
        spent = money(step.cost_usd) if step.cost_usd is None or step.cost_usd else ""
        cells = [step.name, *numbers, took, *([spent] if priced else [])]
        shown.add_row(*cells, step.reason or step.status, _file(step, folder))
    if ran:
        shown.add_row("all", "", "", "", duration(ran))
    return shown


def _file(step: Step, folder: Path) -> str:
    """The first file of a step, which is the one that is named for it; of a dataset, the folder."""
    if step.status not in ("done", "unchanged") or not step.outputs:
        return ""
    path = Path(os.path.commonpath(step.outputs) if step.stage == "publish" else next(iter(step.outputs)))
    return str(path.relative_to(folder) if path.is_relative_to(folder) else path)


def own_name() -> str:
    """How this program was called, so that a line that is shown can be copied: it need not be on the PATH."""
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return f"{sys.executable} -m kernelmill"
    found = shutil.which("kernelmill")
    if found is not None and Path(found).resolve() == called.resolve():
        return "kernelmill"
    if not called.exists():
        return "kernelmill"
    if not called.absolute().is_relative_to(Path.cwd()):
        return str(called.absolute())
    below = os.path.relpath(called)
    return below if os.sep in below else f".{os.sep}{below}"
