"""`kernelmill decompose`: turn models into trees of problems, each proven.

Flags and output only; `batch` does the work.

The exit code is 1 if a model could not be decomposed or its proof failed. Each such model gets one line.
"""

from __future__ import annotations

import json
import statistics
import time
from argparse import ArgumentTypeError
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.tree import Tree as RichTree

from kernelmill.base.missing import require
from kernelmill.base.terminal import duration, plain
from kernelmill.base.whole_file import write_whole
from kernelmill.decompose.batch import Decomposer, Outcome, graph
from kernelmill.decompose.errors import BadSource
from kernelmill.decompose.levels import LEVELS, Level
from kernelmill.decompose.sources.hf import hf_source
from kernelmill.decompose.sources.importable import keyword, module_source
from kernelmill.decompose.sources.problem_files import ModelFile, model_files
from kernelmill.decompose.write.picture import rich_tree
from kernelmill.errors import ConfigError, SourceError
from kernelmill.settings.options import ToolSettings, argument, option, processors, workers_option

LEVELS_HELP = "levels of parts, " + ", ".join(f"{number} {level}" for number, level in enumerate(LEVELS, 1))
_WIDE = 1000
"""Columns when the output is not a terminal: nothing is truncated there."""


def levels_of(text: str) -> tuple[Level, ...]:
    """Parse levels of parts, by number or by name: 1 is a kernel, as in `level1/` of a problem set."""
    numbers: dict[str, str] = {str(number): level for number, level in enumerate(LEVELS, 1)}
    asked = [numbers.get(word.strip(), word.strip()) for word in text.split(",")]
    if unknown := [word for word in asked if word not in LEVELS]:
        raise ArgumentTypeError(f"invalid part level {unknown[0]!r}; expected {LEVELS_HELP}")
    return tuple(level for level in LEVELS if level in asked)


@dataclass(frozen=True, kw_only=True)
class DecomposeSettings(ToolSettings):
    """Take models apart into layers, fusions and kernels, each a problem of its own, and prove that the parts are
    the whole."""

    epilog = "Exit codes: 0 all proven; 1 a model could not be decomposed or proven; 2 wrong usage."
    sources: tuple[Path, ...] = argument(
        "a .py file with a class Model, or a folder of them (or of level1/, level2/ …)", "FILE|DIR", ()
    )
    output: Path = option(
        Path("output"), "where the folders go, FOLDER/level3/NAME", flag="-o", metavar="FOLDER"
    )
    workers: int | None = workers_option("models")
    timeout: int = option(
        300, "seconds one model may take, and one claim of its proof", least=1, metavar="SECONDS"
    )
    levels: tuple[Level, ...] = option(
        LEVELS,
        f"{LEVELS_HELP}, whose files are kept; kernels always are (default: all)",
        parse=levels_of,
        metavar="1,2",
    )
    level: int | None = option(None, "only models of this level", least=1)
    start: int = option(0, "the first model, counted from 0", least=0)
    limit: int | None = option(None, "the first N models only, from --start on", flag="--count", least=1)
    force: bool = option(False, "do again what an earlier run into FOLDER has done and proven")
    module: str | None = option(
        None, "a class to import, from this folder or from Python's packages", metavar="MODULE:CLASS"
    )
    init: str = option(
        "",
        "of --module: what its constructor gets, as Python literals: '(64, heads=8)'",
        metavar="ARGUMENTS",
    )
    inputs: str = option(
        "", "of --module: what goes in: 'x=float32[batch,seq,64], ids=int64[batch,seq]<1000'"
    )
    hf_config: str | None = option(
        None, "a model of transformers by its type (bert, llama, vit), with random weights", metavar="NAME"
    )
    set: tuple[str, ...] = option(
        (),
        "of --hf-config: a field of the configuration, such as num_hidden_layers=2 (may be repeated)",
        metavar="KEY=VALUE",
    )
    graph: Path | None = option(None, "write what the model calls as JSON, and do nothing else")


def main(given: DecomposeSettings) -> int:
    """Run the command. Raises `MillError` if there is nothing to read or nothing can be written."""
    require("decompose", "torch", "ruff", extra="eval")
    started = time.monotonic()
    models = _asked(_models(given), given.level, given.start, given.limit)
    if given.graph is not None:
        return _graph(models, given.graph, float(given.timeout))
    number = 0

    def done(outcome: Outcome) -> None:
        nonlocal number
        number += 1
        decomposer.progress.say(f"{f'{number}/{len(models)}  ' if len(models) > 1 else ''}{line(outcome)}")

    workers = processors(given.workers)
    with Decomposer(
        given.output, workers, float(given.timeout), given.levels, force=given.force
    ) as decomposer:
        outcomes = decomposer.run(models, done)
    if len(outcomes) == 1 and outcomes[0].raw is not None:
        show(rich_tree(outcomes[0].raw))
    print(summary(outcomes, time.monotonic() - started))
    for outcome in outcomes:
        if outcome.status != "PASS" and len(outcomes) > 1:
            print(line(outcome))
    print(f"{'output':<12}{given.output}")
    return 0 if all(outcome.status == "PASS" for outcome in outcomes) else 1


def show(tree: RichTree) -> None:
    """Print a tree: long lines wrap in a terminal and stay whole in a file."""
    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        console.width = _WIDE
    console.print(tree)


def _models(given: DecomposeSettings) -> list[ModelFile]:
    """The models to decompose: from files, or the single one named by --module or --hf-config."""
    ways = [bool(given.sources), given.module is not None, given.hf_config is not None]
    if sum(ways) != 1:
        raise _misused("name files or folders, or one of --module and --hf-config")
    if given.module is None and (given.init or given.inputs):
        raise _misused("--init and --inputs belong to --module")
    if given.hf_config is None and given.set:
        raise _misused("--set belongs to --hf-config")
    if given.module is not None:
        return [module_source(given.module, given.init, given.inputs, Path.cwd())]
    if given.hf_config is not None:
        return [hf_source(given.hf_config, dict(keyword(text) for text in given.set))]
    return model_files(given.sources)


def _misused(why: str) -> ConfigError:
    return ConfigError(f"{why} (see kernelmill decompose --help)")


def _graph(models: list[ModelFile], file: Path, timeout: float) -> int:
    if len(models) != 1:
        raise SourceError(f"--graph writes one model, these are {len(models)}")
    try:
        found = graph(models[0], timeout)
    except BadSource as error:
        raise SourceError(f"{models[0].path}: {error}") from None
    write_whole(file, (json.dumps(found, indent=1) + "\n").encode())
    print(f"{'calls':<12}{len(found['calls']):,}")
    print(f"{'modules':<12}{len(found['modules']):,}")
    print(f"{'output':<12}{file}")
    return 0


def _asked(models: list[ModelFile], level: int | None, start: int, count: int | None) -> list[ModelFile]:
    of_level = [model for model in models if level is None or model.level == level]
    asked = of_level[start:] if count is None else of_level[start : start + count]
    if not asked:
        what = "model" if len(of_level) == 1 else "models"
        which = "" if level is None else f" of level {level}"
        end = f": none from --start {start} on" if of_level else ""
        raise SourceError(f"{len(of_level) or 'no'} {what}{which} in what was named{end}")
    return asked


def line(outcome: Outcome) -> str:
    """The result of one model as a line of text."""
    if outcome.tree is None:
        return plain(f"{outcome.model.path}: {outcome.reason}")
    tree, proof = outcome.tree, outcome.proof
    parts = [(len(tree.of_level(level)), level) for level in reversed(LEVELS)]
    kind = tree.metadata.classification
    words = [
        outcome.model.output_path,
        kind.level if kind is not None else "",
        ", ".join(f"{count} {level}{'s' if count > 1 else ''}" for count, level in parts if count),
        outcome.status,
        "" if proof is None or proof.coverage is None else f"coverage {proof.coverage:.4g}%",
        "numbers at a smaller size" if proof is not None and proof.reduced else "",
        "done before" if outcome.before else f"{outcome.seconds:.1f} s",
        _first(outcome),
    ]
    return plain("  ".join(word for word in words if word))


def _first(outcome: Outcome) -> str:
    """Why the proof failed: its first line, and how many more there are."""
    lines = outcome.proof.lines if outcome.proof is not None else []
    return f"{lines[0][:300]}{f' (and {len(lines) - 1} more)' if len(lines) > 1 else ''}" if lines else ""


def summary(outcomes: Sequence[Outcome], seconds: float) -> str:
    """A table with a row per source level: models given, proven, failed, their parts, and the median time."""
    rows = [("level", "given", "proven", "failed", *(f"{level}s" for level in reversed(LEVELS)), "median s")]
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(outcome.model.output_path.partition("/")[0], []).append(outcome)
    if len(groups) > 1:
        groups["all"] = list(outcomes)
    for name, mine in groups.items():
        proven = sum(outcome.status == "PASS" for outcome in mine)
        nodes = [
            node.level for outcome in mine if outcome.tree is not None for node in outcome.tree.nodes.values()
        ]
        parts = [f"{nodes.count(level):,}" for level in reversed(LEVELS)]
        seconds_each = [outcome.seconds for outcome in mine if not outcome.before]
        median = f"{statistics.median(seconds_each):.1f}" if seconds_each else "-"
        rows.append((name, f"{len(mine):,}", f"{proven:,}", f"{len(mine) - proven:,}", *parts, median))
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(["decompose", *lines, f"{'time':<12}{duration(seconds)}"])
