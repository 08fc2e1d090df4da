"""`kernelmill verify-kernelbook`: the command line."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from kernelmill.base.terminal import say
from kernelmill.benchmarks.kernelbook.verify import Book, verify
from kernelmill.errors import OutputError
from kernelmill.evaluate.command import NOT_DONE, still_owed
from kernelmill.evaluate.options import Options
from kernelmill.settings.arguments import Parser, add_device, add_workers, at_least, processors
from kernelmill.settings.config import secret
from kernelmill.store import Output, open_source
from kernelmill.store.output import beside

STAGE = "verify-kernelbook"


def parser() -> Parser:
    made = Parser(
        prog=f"kernelmill {STAGE}",
        description="Judge the triton_code of KernelBook rows against their python_code, and keep the rows that hold.",
        epilog="Exit codes: 0 judged, whatever the verdicts; 1 failed; 2 wrong usage; 3 some rows not finished (INFRA_ERROR: run again); 130 interrupted (run again to resume).",
        allow_abbrev=False,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=32, width=110),
    )
    made.add_argument("rows", metavar="ROWS", help="KernelBook rows: file, folder or Hub dataset")
    made.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="FILE",
        help="where the rows go; verdicts, rejected rows and a manifest stand beside it",
    )
    made.add_argument("--split", metavar="NAME", help="one split of a Hub dataset (default: all)")
    add_device(made)
    add_workers(made, "rows")
    made.add_argument(
        "--timeout",
        type=at_least(1),
        default=int(Options.timeout),
        metavar="SECONDS",
        help=f"seconds one row may take in one tier (default: {Options.timeout:g})",
    )
    made.add_argument("--tf32", action="store_true", help="allow TF32 in float32 matrix products")
    made.add_argument("--limit", type=at_least(1), metavar="N", help="the first N rows only")
    made.add_argument(
        "--keep",
        choices=("correct", "all"),
        default="correct",
        help="what the output holds: verified rows, or every row that was judged (default: correct)",
    )
    made.add_argument(
        "--licences",
        type=_names,
        metavar="A,B",
        help="only rows all of whose licences are among these, such as mit,apache-2.0 (default: any)",
    )
    made.add_argument(
        "--as-is",
        action="store_true",
        help="judge the text to the letter, also where it needs the torch that wrote it",
    )
    made.add_argument(
        "--on-bad-row",
        choices=("stop", "reject"),
        default="stop",
        help="what to do with a row that cannot be read (default: stop)",
    )
    made.add_argument(
        "--force",
        action="store_true",
        help="throw away the verdicts that stand beside the output, and judge again",
    )
    return made


def main(arguments: list[str]) -> int:
    """`kernelmill verify-kernelbook`: KernelBook rows in; the rows with their verdicts out."""
    given = parser().parse_args(arguments)
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


def _config(given: argparse.Namespace) -> dict[str, Any]:
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


def _names(text: str) -> frozenset[str]:
    names = frozenset(name.strip().lower() for name in text.split(",") if name.strip())
    if not names:
        raise argparse.ArgumentTypeError("expected licences, such as mit,apache-2.0")
    return names
