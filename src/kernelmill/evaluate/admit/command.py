"""`kernelmill admit`: find problems that accept a candidate which does not compute them.

Writes one row per problem, in the given order: `id`, `admitted`, `reasons`, `details`. Each problem is tried
in its own sandboxed process, so a crash there affects one row only. Standard library only, like everything
that runs on a bare machine.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelmill.base.problem_layout import maker_of, natural
from kernelmill.base.whole_file import replacing
from kernelmill.errors import OutputError, SourceError
from kernelmill.evaluate.task import offline_models
from kernelmill.runner import ItemProgress, Threads, run_all
from kernelmill.sandbox import Reply, Sandbox
from kernelmill.sandbox.pool import Pool
from kernelmill.settings.commands import run_tool
from kernelmill.settings.options import ToolSettings, argument, option, processors, workers_option

WORKER = "kernelmill.evaluate.admit.worker"
MEMORY_MB = 6144


@dataclass(frozen=True, kw_only=True)
class AdmitSettings(ToolSettings):
    """Flag problems that a candidate could pass without computing them."""

    abbreviations = True
    sources: tuple[Path, ...] = argument("a problem's .py file, or a folder of them", "SOURCE")
    output: Path | None = option(None, "write one JSON row a problem to this file", flag="-o")
    json: bool = option(False, "print JSON: the rows instead of the table")
    entry_point: str | None = option(
        None, "the class of the reference; default: Model, or the only one", metavar="CLASS"
    )
    seed: int = option(0, "what the inputs and weights are drawn with")
    tf32: bool = option(False, "allow TF32 in float32 matrix products")
    workers: int | None = workers_option("problems")
    timeout: float = option(60.0, "seconds one problem may take (default: 60)", metavar="SECONDS")


def main(given: AdmitSettings) -> int:
    """Run the command. Raises `MillError` if there is nothing to read or nowhere to write."""
    workers = processors(given.workers)
    problems = [problem for source in given.sources for problem in _problems(source)]
    if given.output is not None and not given.output.parent.is_dir():
        raise OutputError(f"{given.output}: there is no folder {given.output.parent}")

    def server(environment: Mapping[str, str]) -> Sandbox:
        return Sandbox(WORKER, workers, given.timeout, memory_mb=MEMORY_MB, environment=environment)

    with Pool(server) as servers:

        def row(problem: tuple[str, str]) -> dict[str, Any]:
            name, code = problem
            sandbox = servers.get(offline_models.environment_for(code, "small"))
            request = {
                "reference": code,
                "entry_point": given.entry_point,
                "seed": given.seed,
                "tf32": given.tf32,
            }
            return {"id": name, **_result(sandbox.run_sync(request))}

        rows = run_all(
            problems,
            lambda _: Threads(row, workers, servers),
            ItemProgress("problems tried"),
            lambda problem: problem[0],
        )
    if given.output is not None:
        _write(given.output, rows)
    if given.json:
        for each in rows:
            print(json.dumps(each, ensure_ascii=False))
    else:
        print(table(rows))
    return 0


def table(rows: list[dict[str, Any]]) -> str:
    """Every problem with its reasons, then a count of each reason."""
    width = max((len(row["id"]) for row in rows), default=0)
    lines = [
        f"{row['id']:<{width}}  {'admitted' if row['admitted'] else 'refused '}  {'; '.join(row['reasons'])}".rstrip()
        for row in rows
    ]
    admitted = sum(row["admitted"] for row in rows)
    lines += ["", f"{admitted} of {len(rows)} admitted"]
    counts = Counter(re.split(r"[:(]", reason)[0].strip() for row in rows for reason in row["reasons"])
    return "\n".join([*lines, *(f"{count:6}  {reason}" for reason, count in counts.most_common())])


def _result(reply: Reply) -> dict[str, Any]:
    if reply["kind"] == "ok":
        return reply["result"]
    said = (
        f"{reply['type']}: {reply['message']}"
        if reply["kind"] == "error"
        else reply["kind"].replace("_", " ")
    )
    return {"admitted": False, "reasons": [f"it cannot be tried: {said}"], "details": {}}


def _problems(source: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each problem. Files of a folder are in natural order."""
    if source.is_dir():
        files = sorted(source.rglob("*.py"), key=natural)
        if not files:
            raise SourceError(f"{source}: no .py file in this folder{maker_of(source)}")
    elif source.is_file():
        files = [source]
    else:
        raise SourceError(f"{source}: no such file or folder{maker_of(source)}")
    for file in files:
        try:
            code = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SourceError(f"{file}: {error}") from None
        yield (file.relative_to(source).with_suffix("").as_posix() if source.is_dir() else file.stem), code


def _write(output: Path, rows: list[dict[str, Any]]) -> None:
    try:
        with replacing(output) as file:
            file.writelines(f"{json.dumps(row, ensure_ascii=False)}\n".encode() for row in rows)
    except OSError as error:
        raise OutputError(f"{output}: {error.strerror}") from None


if __name__ == "__main__":
    sys.exit(run_tool("admit", sys.argv[1:]))
