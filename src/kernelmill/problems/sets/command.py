"""`kernelmill problems`: the subcommands for problem sets.

Flags and printing only; `merge`, `verify` and the others do the work.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelmill.base.problem_layout import KERNELBENCH
from kernelmill.base.task_rules import MARKS, Mark
from kernelmill.base.terminal import plain, say, tell
from kernelmill.base.whole_file import encoded, write_whole
from kernelmill.errors import ConfigError, OutputError
from kernelmill.problems.sets.distribution import distribution_of
from kernelmill.problems.sets.levels import PREFIX, asked_levels, levels_of, merged_file
from kernelmill.problems.sets.listing import list_set, show_problem, stats_lines, stats_of
from kernelmill.problems.sets.merge import SEED, Order, merged, parse_weights, read_levels, written
from kernelmill.problems.sets.trainers import TRAINERS
from kernelmill.problems.sets.verify import Verified, VerifyRequest, verify
from kernelmill.settings.config import GIVEN
from kernelmill.settings.options import ToolSettings, argument, option, processors, workers_option
from kernelmill.stages.source_choice import source_line

IMPORTED = Path("data") / KERNELBENCH
SHOWN = 50
"""The number of faults printed; the others are only counted."""


@dataclass(frozen=True, kw_only=True)
class ProblemsSettings(ToolSettings):
    """Import problems, inspect them, and make RL prompts of them."""

    abbreviations = True
    epilog = "Run `kernelmill problems COMMAND --help` for options. Exit codes: 0 done; 1 failed, or verify found a fault; 2 wrong usage."


@dataclass(frozen=True, kw_only=True)
class ImportSettings(ToolSettings):
    """Import problems. Each is traced at full size on fake tensors and run at a reduced size on the CPU, in a sandbox."""

    source: str = argument(
        "a KernelBench checkout, a Hub dataset, a folder of problem files, or rows; NAME=SOURCE", "SOURCE"
    )
    into: Path | None = option(None, "where they go (default: data/NAME)", metavar="FOLDER")
    benchmark: bool | None = option(
        None, "it measures models and must stay out of training sets (default: yes for KernelBench)"
    )
    default_level: int | None = option(
        None, "level of problems that have none (default: 1)", flag="--level", least=1
    )
    workers: int | None = workers_option("problems")
    timeout: int = option(60, "seconds one run of a problem may take", least=1, metavar="SECONDS")
    force: bool = option(False, "check again what was checked before")


@dataclass(frozen=True, kw_only=True)
class ListSettings(ToolSettings):
    """Every problem of an imported set on a line."""

    folder: Path = argument("an imported set", "FOLDER", IMPORTED)
    levels: str | None = option(None, "these levels only (default: all)", metavar="1,2")
    json: bool = option(False, "print JSON")


@dataclass(frozen=True, kw_only=True)
class ShowSettings(ToolSettings):
    """One problem: inputs, operations, what the checks found, source."""

    problem: str = argument("such as level1/19, or its name", "PROBLEM")
    folder: Path = argument("an imported set", "FOLDER", IMPORTED)
    json: bool = option(False, "print JSON")


@dataclass(frozen=True, kw_only=True)
class StatsSettings(ToolSettings):
    """An imported set by level, operators, sizes and dtypes."""

    folder: Path = argument("an imported set", "FOLDER", IMPORTED)
    json: bool = option(False, "print JSON")


@dataclass(frozen=True, kw_only=True)
class ExportSettings(ToolSettings):
    """Make prompts for RL trainers of an imported set, in the order of level and problem id."""

    folder: Path = argument("an imported set", "FOLDER", IMPORTED)
    format: str = option("slime", "trainer format", choices=TRAINERS.names)
    output: Path = option(Path("outputs/rl"), "where the files go", flag="-o", metavar="FOLDER")
    levels: str | None = option(None, "these levels only (default: all)", metavar="1,2")
    admitted: bool = option(False, "leave out problems that a candidate could pass without computing them")
    prompt: Path | None = option(
        None,
        "Jinja template for the user message; variables: code, problem_name, class_name, module_name, answer, and the rules work, stateless, precision, payment",
    )
    system_prompt: Path | None = option(None, "Jinja template for the system message")
    answer: Mark | None = option(
        None,
        "how the model is to mark its code: <answer> tags or a code block (default: as the format's trainer reads it)",
    )


@dataclass(frozen=True, kw_only=True)
class LevelFilesSettings(ToolSettings):
    """What `merge` and `verify` share: where the level files are, and which of them."""

    folder: Path | None = argument("where the level files are (default: here)", "FOLDER", None)
    levels: str | None = option(None, "these levels only (default: all)", metavar="1,2")
    weights: str | None = option(
        None,
        "how often to repeat each level's rows; a fraction draws a sample with --seed",
        metavar="1=1,2=2",
    )


@dataclass(frozen=True, kw_only=True)
class MergeSettings(LevelFilesSettings):
    """Merge kernel_bench_triton_level_N.jsonl: lines unchanged, the same bytes for the same files and seed."""

    no_shuffle: bool = option(False, "level after level: the same as --order level")
    seed: int = option(SEED, "of the shuffle")
    output: Path | None = option(
        None,
        "file to write (default: kernel_bench_triton_all_levels.jsonl in FOLDER); a report stands beside it",
        flag="-o",
    )
    order: Order | None = option(None, "row order (default: shuffle)")


@dataclass(frozen=True, kw_only=True)
class VerifySettings(LevelFilesSettings):
    """Check every row of the level files and of the merged file; each fault names its line."""

    merged: Path | None = option(
        None, "the merged file (default: kernel_bench_triton_all_levels.jsonl in FOLDER)"
    )
    order: Order | None = option(None, "the order that it must have (default: any)")
    seed: int | None = option(None, "the seed that it must be shuffled with (default: any)")
    any_counts: bool = option(False, "the levels need not have KernelBench's 100, 100, 50 and 20 rows")


def import_set(given: ImportSettings) -> int:
    from kernelmill.problems.sets.importing import import_problems

    workers = processors(given.workers)
    return import_problems(
        given.source,
        given.into,
        given.benchmark,
        given.default_level,
        workers,
        float(given.timeout),
        given.force,
    )


def list_problems(given: ListSettings) -> int:
    print("\n".join(list_set(given.folder, asked_levels(given.levels), given.json)))
    return 0


def show(given: ShowSettings) -> int:
    print("\n".join(show_problem(given.folder, given.problem, given.json)))
    return 0


def stats(given: StatsSettings) -> int:
    found = stats_of(given.folder)
    print(encoded(found).decode().rstrip("\n") if given.json else "\n".join(stats_lines(found)))
    return 0


def export_prompts(given: ExportSettings) -> int:
    from kernelmill.llm.prompts import Prompt
    from kernelmill.problems.sets.export import Prompts, export

    answer = given.answer or TRAINERS.find(given.format).answer
    prompts = Prompts(Prompt("rl_system", given.system_prompt), Prompt("rl", given.prompt), answer)
    done = export(
        given.folder, given.output, given.format, prompts, asked_levels(given.levels), given.admitted
    )
    print(f"problems export\n{'format':<12}{given.format}\n{'answer':<12}{MARKS[answer]}")
    for level, number in done.rows.items():
        print(f"{f'level {level}':<12}{number:,} rows")
    if done.left_out:
        print(f"{'left out':<12}{done.left_out:,} that are not admitted")
    if done.benchmark:
        print(f"{'benchmark':<12}yes: every row says benchmark: true")
    print(f"{'prompts':<12}{prompts.system.sha256[:12]}, {prompts.user.sha256[:12]}")
    for file in done.files:
        print(f"{'output':<12}{file}")
    return 0


def _read_from(given: LevelFilesSettings) -> tuple[Path, Sequence[int]]:
    """Return the folder and the levels to read, and print them first."""
    folder = given.folder or Path()
    levels = levels_of(folder, given.levels)
    numbers = ",".join(map(str, levels))
    files = folder / f"{PREFIX}_level_{numbers if len(levels) == 1 else f'{{{numbers}}}'}.jsonl"
    tell(source_line(str(files), GIVEN if given.folder else "the current folder"))
    return folder, levels


def merge(given: MergeSettings) -> int:
    folder, levels = _read_from(given)
    order: Order = given.order or ("level" if given.no_shuffle else "shuffle")
    if given.no_shuffle and order == "shuffle":
        raise ConfigError("--no-shuffle and --order shuffle: use only one of them")
    output: Path = given.output or merged_file(folder, levels)
    if output.resolve() in {file.resolve() for file in folder.glob(f"{PREFIX}_level_*.jsonl")}:
        raise OutputError(f"{output} is one of the level files: name another output")
    placed = read_levels(folder, levels)
    for one in placed:
        if one.line.odd:
            say(f"{one.line.where}: {one.line.odd}: fixed in the merged file")
    weights = parse_weights(given.weights, levels) if given.weights else None
    rows = merged(placed, order, given.seed, weights)
    content = written(rows)
    found = distribution_of(rows, hashlib.sha256(content).hexdigest())
    how = f"shuffled with seed {given.seed}" if order == "shuffle" else f"--order {order}"
    text = ["merge", f"{'order':<12}{how}", *found.lines()]
    stem = output.name.removesuffix(".jsonl")
    write_whole(output, content)
    for suffix, report in (
        (".txt", "\n".join(text) + "\n"),
        (".json", encoded(found).decode()),
        (".svg", found.svg()),
    ):
        write_whole(output.with_name(f"{stem}_report{suffix}"), report.encode())
    print("\n".join(text))
    print(f"{'output':<12}{output}\n{'':<12}{output.with_name(f'{stem}_report')}.txt .json .svg")
    return 0


def verify_files(given: VerifySettings) -> int:
    folder, levels = _read_from(given)
    weights = parse_weights(given.weights, levels) if given.weights else None
    file = given.merged or merged_file(folder, levels)
    done = verify(VerifyRequest(folder, file, levels, weights, given.order, given.seed, given.any_counts))
    for fault in done.faults[:SHOWN]:
        print(plain(f"{fault.where}: {fault.text}"))
    if len(done.faults) > SHOWN:
        print(f"and {len(done.faults) - SHOWN:,} more")
    _sum_up(done, file)
    return 1 if done.faults else 0


def _sum_up(done: Verified, file: Path) -> None:
    for note in done.notes:
        print(plain(note))
    if done.rows:
        found = distribution_of(done.rows, hashlib.sha256(file.read_bytes()).hexdigest())
        print("\n".join(found.lines()))
    if done.faults:
        print(
            f"FAILED: {len(done.faults):,} fault{'s' if len(done.faults) > 1 else ''} in {file} and its level files"
        )
    else:
        print(f"OK: every row of {file} is a row of the level files, exactly once, unchanged")
