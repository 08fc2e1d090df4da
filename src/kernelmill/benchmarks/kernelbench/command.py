"""`kernelmill bench-model`: a model over KernelBench, level by level.

`synthesize` asks, judges, keeps the journal and resumes; its flags are passed through. Each level has its own
folder.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from kernelmill.base.terminal import say
from kernelmill.base.whole_file import write_whole
from kernelmill.benchmarks.kernelbench.results import eval_results, summary
from kernelmill.errors import ConfigError, SourceError
from kernelmill.problems.sets.levels import asked_levels
from kernelmill.settings.arguments import Parser, config_file
from kernelmill.settings.options import ToolSettings, argument, option
from kernelmill.store.manifest import manifest_of

_OURS = (
    "-o",
    "--output",
    "--rollouts",
    "--keep",
    "--split",
    "--problems",
    "--stats",
    "--export",
    "--test-mode",
)
"""Flags of `synthesize` that this command sets itself."""


@dataclass(frozen=True, kw_only=True)
class BenchSettings(ToolSettings):
    """Have a model answer KernelBench and grade it: fast_p and pass@k by level, eval_results.json as KernelBench
    writes it."""

    epilog = "Every other flag is one of synthesize's: --model, --base-url, --sampling, --turns, --device, --limit, … Exit codes are its, too."
    source: str = argument("a checkout, a folder with level1, level2, …, or the Hub dataset", "KERNELBENCH")
    output: Path = option(..., "where results go, a folder for each level", flag="-o", metavar="FOLDER")
    levels: str | None = option(None, "these levels only (default: all that are there)", metavar="1,2")
    samples: int = option(1, "answers for each problem", least=1)
    rest: tuple[str, ...] = ()
    """Arguments of `synthesize`."""

    @classmethod
    def load(cls, parser: Parser, arguments: list[str]) -> BenchSettings:
        """Flags that this command does not have are passed on to `synthesize`."""
        from kernelmill.generate.synthesize.config_file import KEYS

        file, _ = config_file(arguments)
        parser.more_tables = KEYS
        given, rest = parser.parse_known_args(arguments)
        rest += ["@", str(file)] if file is not None else []  # the file's other tables are for synthesize
        return cls.of(given, rest=tuple(rest))


def main(given: BenchSettings) -> int:
    """`kernelmill bench-model`: KernelBench in; results by level and `eval_results.json` out."""
    from kernelmill.cli import main as kernelmill

    if wrong := next((flag for flag in given.rest if flag.partition("=")[0] in _OURS), None):
        raise ConfigError(f"{wrong} is settled by bench-model: see kernelmill bench-model --help")
    report: dict[str, Any] = {"levels": {}}
    for level, source in _levels(given.source, given.levels).items():
        folder = given.output / f"level{level}"
        rows_file = folder / "evals.jsonl"
        line = [
            "synthesize",
            *source,
            "-o",
            str(rows_file),
            "--rollouts",
            str(given.samples),
            "--keep",
            "all",
        ]
        say(f"level {level}: {' '.join(source)}")
        code = kernelmill([*line, "--export", "best", *given.rest])
        if code != 0:
            return code
        if "--dry-run" in given.rest:
            continue
        rows = [json.loads(text) for text in rows_file.read_bytes().split(b"\n") if text]
        results = eval_results(rows)
        write_whole(folder / "eval_results.json", (json.dumps(results, indent=4) + "\n").encode())
        # Do not count rows: a problem that is too long for the model has no row, but counts.
        manifest = manifest_of(rows_file)
        assert manifest is not None, f"synthesize left no manifest beside {rows_file}"
        report["levels"][str(level)] = summary(results, manifest["rows"]["in"] // given.samples)
        report["writer"] = rows[0]["writer"] if rows else None
    if "--dry-run" in given.rest:
        return 0
    write_whole(given.output / "results.json", (json.dumps(report, indent=2) + "\n").encode())
    _show(report, given.output)
    return 0


def _levels(source: str, asked: str | None) -> dict[int, list[str]]:
    """Return what `synthesize` is to read, by level."""
    wanted = asked_levels(asked) if asked is not None else None
    root = Path(source)
    if not root.is_dir():
        return {level: [source, "--split", f"level_{level}"] for level in wanted or (1, 2, 3, 4)}
    for base in (root, root / "KernelBench"):
        there = {
            level: [str(base / f"level{level}")]
            for level in (1, 2, 3, 4)
            if (base / f"level{level}").is_dir()
        }
        if there:
            if missing := [level for level in wanted or () if level not in there]:
                raise SourceError(f"{base} has no level {missing[0]}")
            return {level: line for level, line in there.items() if wanted is None or level in wanted}
    raise SourceError(f"{source} has no folder level1, level2, level3 or level4")


def _show(report: dict[str, Any], folder: Path) -> None:
    table = Table(box=None, pad_edge=False)
    names = (
        "level",
        "problems",
        "compiled",
        "correct",
        "fast_0",
        "fast_1",
        "fast_2",
        "pass@k",
        "unknown",
    )
    for name in names:
        table.add_column(name, justify="left" if name in ("level", "pass@k") else "right")
    for level, found in report["levels"].items():
        fast = ["-" if share is None else f"{share:.1%}" for share in found["fast_p"].values()]
        passed = " ".join(f"@{k} {share:.1%}" for k, share in found["pass_at_k"].items())
        numbers = [str(found[name]) for name in ("problems", "compiled", "correct")]
        table.add_row(level, *numbers, *fast, passed, str(found["inconclusive"]))
    console = Console(markup=False, highlight=False)
    console.print(f"\n{report.get('writer')} on KernelBench; fast_p against eager, by the first sample")
    console.print(table)
    if all(found["fast_p"]["1"] is None for found in report["levels"].values()):
        console.print("Nothing was timed: without a GPU only fast_0 is known.")
    console.print(f"\n{folder / 'results.json'}, and eval_results.json for each level beside its rows")
