"""`kernelmill verify-kernelbook`: the command line."""

from __future__ import annotations

from argparse import ArgumentTypeError
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kernelmill.base.terminal import say
from kernelmill.benchmarks.kernelbook.verify import Book, Keep, verify
from kernelmill.errors import OutputError
from kernelmill.evaluate.command import NOT_DONE, still_owed
from kernelmill.evaluate.options import Options
from kernelmill.settings.config import secret
from kernelmill.settings.options import (
    Device,
    ToolSettings,
    argument,
    device_option,
    option,
    processors,
    workers_option,
)
from kernelmill.store import Output, open_source
from kernelmill.store.output import beside

STAGE = "verify-kernelbook"


def _names(text: str) -> frozenset[str]:
    names = frozenset(name.strip().lower() for name in text.split(",") if name.strip())
    if not names:
        raise ArgumentTypeError("expected licences, such as mit,apache-2.0")
    return names


@dataclass(frozen=True, kw_only=True)
class VerifySettings(ToolSettings):
    """Judge the triton_code of KernelBook rows against their python_code, and keep the rows that hold."""

    epilog = "Exit codes: 0 judged, whatever the verdicts; 1 failed; 2 wrong usage; 3 some rows not finished (INFRA_ERROR: run again); 130 interrupted (run again to resume)."
    rows: str = argument("KernelBook rows: file, folder or Hub dataset", "ROWS")
    output: Path = option(
        ..., "where the rows go; verdicts, rejected rows and a manifest stand beside it", flag="-o"
    )
    split: str | None = option(None, "one split of a Hub dataset (default: all)", metavar="NAME")
    device: Device = device_option()
    workers: int | None = workers_option("rows")
    timeout: int = option(
        int(Options.timeout), "seconds one row may take in one tier", least=1, metavar="SECONDS"
    )
    tf32: bool = option(False, "allow TF32 in float32 matrix products")
    limit: int | None = option(None, "the first N rows only", least=1)
    keep: Keep = option("correct", "what the output holds: verified rows, or every row that was judged")
    licences: frozenset[str] | None = option(
        None,
        "only rows all of whose licences are among these, such as mit,apache-2.0 (default: any)",
        parse=_names,
        metavar="A,B",
    )
    as_is: bool = option(False, "judge the text to the letter, also where it needs the torch that wrote it")
    on_bad_row: Literal["stop", "reject"] = option("stop", "what to do with a row that cannot be read")
    force: bool = option(False, "throw away the verdicts that stand beside the output, and judge again")


def main(given: VerifySettings) -> int:
    """`kernelmill verify-kernelbook`: KernelBook rows in; the rows with their verdicts out."""
    output = Output(given.output.expanduser())
    verdicts = beside(output.path, ".verdicts.jsonl")
    source = open_source(given.rows, given.split, secret("HF_TOKEN"))
    for file in source.files:
        output.refuse(file.path, "the source")
        if file.path.resolve() == verdicts.resolve():
            raise OutputError(f"{file.path} is the source, and where the verdicts go: name another -o")
    timeout = float(given.timeout)
    book = Book(
        source=source.files[0].path,
        output=verdicts,
        options=Options(
            device=given.device,
            tf32=given.tf32,
            timeout=timeout,
            call_timeout=min(Options.call_timeout, timeout),
        ),
        workers=processors(given.workers),
        limit=given.limit,
        force=given.force,
        rows=source,
        licences=given.licences,
        as_is=given.as_is,
        reject_bad=given.on_bad_row == "reject",
    )
    with output:
        tally, done = verify(book, output, given.keep)
        details = {"source": source.origin, "judged": done.judged, **tally.details()}
        output.commit(STAGE, tally.rows, _config(given), details)
    print(STAGE)
    for label, value in (
        ("rows in", f"{tally.rows:,}"),
        ("kept", f"{output.kept:,}"),
        ("rejected", f"{output.reasons.total():,}"),
        ("verified", tally.verified()),
        ("judged now", f"{done.judged:,} different texts"),
        *output.listing(),
        ("", str(verdicts)),
    ):
        print(f"{label:<12}{value}")
    print(f"\n{tally.render()}")
    if owed := tally.statuses["inconclusive", "INFRA_ERROR"]:
        say(still_owed(owed))
    return NOT_DONE if owed else 0


def _config(given: VerifySettings) -> dict[str, Any]:
    """Return the flags that determine the content of OUT and differ from their defaults."""
    found: dict[str, Any] = {"source": given.rows}
    for name, default in (("split", None), ("device", "auto"), ("limit", None), ("keep", "correct")):
        if getattr(given, name) != default:
            found[name] = getattr(given, name)
    found |= {name: True for name in ("tf32", "as_is") if getattr(given, name)}
    if given.licences is not None:
        found["licences"] = ",".join(sorted(given.licences))
    if given.on_bad_row != "stop":
        found["on_bad_row"] = given.on_bad_row
    return found
