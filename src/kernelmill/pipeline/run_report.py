"""The record of a run (`run.json`), and what is printed at its end: steps, results, next commands.

Does not run anything: `command` does.
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
"""The width of the output where it is not a terminal, so that paths are not truncated."""


class Step(Struct):
    """One step, as recorded in `run.json`."""

    name: str
    stage: str
    status: str = "not reached"
    """`done`, `unchanged`, `failed`, `stopped` (the same command resumes), `not reached`, `left out`."""
    fingerprint: str = ""
    """A hash of the settings and of all inputs."""
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
    """Read the record; an empty one if there is no file yet."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Record)
    except FileNotFoundError:
        return Record(form)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path} is not what a run wrote ({error}): move it away") from None


def now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def show(record: Record, report: Path, next_commands: list[str]) -> None:
    """Print the end of a run, also of a failed one, which has no next commands."""
    # Paths must stay in one piece, so that they can be copied: the terminal wraps long lines.
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
    """One line for each step. Paths below `folder` are relative to it."""
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
    """The first output file of a step; for a dataset, its folder."""
    if step.status not in ("done", "unchanged") or not step.outputs:
        return ""
    path = Path(os.path.commonpath(step.outputs) if step.stage == "publish" else next(iter(step.outputs)))
    return str(path.relative_to(folder) if path.is_relative_to(folder) else path)


def own_name() -> str:
    """The command that started this program, so that printed commands work even if it is not on the PATH."""
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
