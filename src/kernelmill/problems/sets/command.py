"""`kernelmill problems`: the subcommands for problem sets.

Flags and printing only; `merge`, `verify` and the others do the work.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Sequence
from pathlib import Path

from kernelmill.base.problem_layout import KERNELBENCH
from kernelmill.base.task_rules import MARKS
from kernelmill.base.terminal import plain, say, tell
from kernelmill.base.whole_file import encoded, write_whole
from kernelmill.errors import ConfigError, OutputError
from kernelmill.problems.sets.distribution import distribution_of
from kernelmill.problems.sets.levels import PREFIX, asked_levels, levels_of, merged_file
from kernelmill.problems.sets.listing import list_set, show_problem, stats_lines, stats_of
from kernelmill.problems.sets.merge import ORDERS, SEED, Order, merged, parse_weights, read_levels, written
from kernelmill.problems.sets.trainers import TRAINERS
from kernelmill.problems.sets.verify import Verified, VerifyRequest, verify
from kernelmill.settings.arguments import Parser, add_workers, at_least, processors
from kernelmill.settings.config import GIVEN
from kernelmill.stages.source_choice import source_line

IMPORTED = Path("data") / KERNELBENCH
SHOWN = 50
"""The number of faults printed; the others are only counted."""


def _format(prog: str) -> argparse.HelpFormatter:
    return argparse.HelpFormatter(prog, max_help_position=32, width=110)


def parser() -> Parser:
    made = Parser(
        prog="kernelmill problems",
        description="Import problems, inspect them, and make RL prompts of them.",
        epilog="Run `kernelmill problems COMMAND --help` for options. Exit codes: 0 done; 1 failed, or verify found a fault; 2 wrong usage.",
        formatter_class=_format,
    )
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_import(commands)
    _add_looking(commands)
    _add_export(commands)
    _add_merge(commands)
    _add_verify(commands)
    return made


def _subcommand(
    commands: argparse._SubParsersAction[Parser], name: str, help: str, description: str
) -> Parser:
    return commands.add_parser(
        name, help=help, description=description, formatter_class=_format, allow_abbrev=False
    )


def _add_import(commands: argparse._SubParsersAction[Parser]) -> None:
    made = _subcommand(
        commands,
        "import",
        "problems from KernelBench or anywhere else into a folder, each checked once",
        "Import problems. Each is traced at full size on fake tensors and run at a reduced size on the CPU, in a sandbox.",
    )
    made.add_argument(
        "source",
        metavar="SOURCE",
        help="a KernelBench checkout, a Hub dataset, a folder of problem files, or rows; NAME=SOURCE",
    )
    made.add_argument("--into", type=Path, metavar="FOLDER", help="where they go (default: data/NAME)")
    made.add_argument(
        "--benchmark",
        action=argparse.BooleanOptionalAction,
        help="it measures models and must stay out of training sets (default: yes for KernelBench)",
    )
    made.add_argument(
        "--default-level",
        "--level",
        dest="level",
        type=at_least(1),
        metavar="N",
        help="level of problems that have none (default: 1)",
    )
    add_workers(made, "problems")
    made.add_argument(
        "--timeout",
        type=at_least(1),
        default=60,
        metavar="SECONDS",
        help="seconds one run of a problem may take (default: 60)",
    )
    made.add_argument("--force", action="store_true", help="check again what was checked before")
    made.set_defaults(run=_import)


def _add_looking(commands: argparse._SubParsersAction[Parser]) -> None:
    for name, what, run in (
        ("list", "every problem of an imported set on a line", _list),
        ("show", "one problem: inputs, operations, what the checks found, source", _show),
        ("stats", "an imported set by level, operators, sizes and dtypes", _stats),
    ):
        made = _subcommand(commands, name, what, f"{what[0].upper()}{what[1:]}.")
        if name == "show":
            made.add_argument("problem", metavar="PROBLEM", help="such as level1/19, or its name")
        _add_imported_set(made)
        if name == "list":
            made.add_argument("--levels", metavar="1,2", help="these levels only (default: all)")
        made.add_argument("--json", action="store_true", help="print JSON")
        made.set_defaults(run=run)


def _add_imported_set(made: Parser) -> None:
    made.add_argument(
        "folder",
        nargs="?",
        type=Path,
        default=IMPORTED,
        metavar="FOLDER",
        help=f"an imported set (default: {IMPORTED})",
    )


def _add_export(commands: argparse._SubParsersAction[Parser]) -> None:
    made = _subcommand(
        commands,
        "export",
        "an imported set as prompts for RL trainers",
        "Make prompts for RL trainers of an imported set, in the order of level and problem id.",
    )
    _add_imported_set(made)
    made.add_argument(
        "--format", choices=TRAINERS.names(), default="slime", help="trainer format (default: slime)"
    )
    made.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("outputs/rl"),
        metavar="FOLDER",
        help="where the files go (default: outputs/rl)",
    )
    made.add_argument("--levels", metavar="1,2", help="these levels only (default: all)")
    made.add_argument(
        "--admitted",
        action="store_true",
        help="leave out problems that a candidate could pass without computing them",
    )
    made.add_argument(
        "--prompt",
        type=Path,
        metavar="FILE",
        help="Jinja template for the user message; variables: code, problem_name, class_name, module_name, answer, and the rules work, stateless, precision, payment",
    )
    made.add_argument(
        "--system-prompt", type=Path, metavar="FILE", help="Jinja template for the system message"
    )
    made.add_argument(
        "--answer",
        choices=tuple(MARKS),
        help="how the model is to mark its code: <answer> tags or a code block (default: as the format's trainer reads it)",
    )
    made.set_defaults(run=_export)


def _add_merge(commands: argparse._SubParsersAction[Parser]) -> None:
    made = _subcommand(
        commands,
        "merge",
        "level files as one file, shuffled or in an order",
        "Merge kernel_bench_triton_level_N.jsonl: lines unchanged, the same bytes for the same files and seed.",
    )
    _add_set(made)
    made.add_argument(
        "--no-shuffle", action="store_true", help="level after level: the same as --order level"
    )
    made.add_argument("--seed", type=int, default=SEED, metavar="N", help=f"of the shuffle (default: {SEED})")
    made.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="file to write (default: kernel_bench_triton_all_levels.jsonl in FOLDER); a report stands beside it",
    )
    made.add_argument("--order", choices=ORDERS, help="row order (default: shuffle)")
    made.set_defaults(run=_merge)


def _add_verify(commands: argparse._SubParsersAction[Parser]) -> None:
    made = _subcommand(
        commands,
        "verify",
        "whether a merged file is what its level files make it",
        "Check every row of the level files and of the merged file; each fault names its line.",
    )
    _add_set(made)
    made.add_argument(
        "--merged",
        type=Path,
        metavar="FILE",
        help="the merged file (default: kernel_bench_triton_all_levels.jsonl in FOLDER)",
    )
    made.add_argument("--order", choices=ORDERS, help="the order that it must have (default: any)")
    made.add_argument(
        "--seed", type=int, metavar="N", help="the seed that it must be shuffled with (default: any)"
    )
    made.add_argument(
        "--any-counts",
        action="store_true",
        help="the levels need not have KernelBench's 100, 100, 50 and 20 rows",
    )
    made.set_defaults(run=_verify)


def _add_set(made: Parser) -> None:
    """Add the flags that both share: where the level files are, and which of them."""
    made.add_argument(
        "folder",
        nargs="?",
        type=Path,
        metavar="FOLDER",
        help="where the level files are (default: here)",
    )
    made.add_argument("--levels", metavar="1,2", help="these levels only (default: all)")
    made.add_argument(
        "--weights",
        metavar="1=1,2=2",
        help="how often to repeat each level's rows; a fraction draws a sample with --seed",
    )


def main(arguments: list[str]) -> int:
    """`kernelmill problems`: problem sets in; problem folders and RL prompts out. Returns the exit code."""
    given = parser().parse_args(arguments)
    code: int = given.run(given)
    return code


def _import(given: argparse.Namespace) -> int:
    from kernelmill.problems.sets.importing import import_problems

    workers = processors(given.workers)
    return import_problems(
        given.source, given.into, given.benchmark, given.level, workers, float(given.timeout), given.force
    )


def _list(given: argparse.Namespace) -> int:
    print("\n".join(list_set(given.folder, asked_levels(given.levels), given.json)))
    return 0


def _show(given: argparse.Namespace) -> int:
    print("\n".join(show_problem(given.folder, given.problem, given.json)))
    return 0


def _stats(given: argparse.Namespace) -> int:
    found = stats_of(given.folder)
    print(encoded(found).decode().rstrip("\n") if given.json else "\n".join(stats_lines(found)))
    return 0


def _export(given: argparse.Namespace) -> int:
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


def _read_from(given: argparse.Namespace) -> tuple[Path, Sequence[int]]:
    """Return the folder and the levels to read, and print them first."""
    folder = given.folder or Path()
    levels = levels_of(folder, given.levels)
    numbers = ",".join(map(str, levels))
    files = folder / f"{PREFIX}_level_{numbers if len(levels) == 1 else f'{{{numbers}}}'}.jsonl"
    tell(source_line(str(files), GIVEN if given.folder else "the current folder"))
    return folder, levels


def _merge(given: argparse.Namespace) -> int:
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


def _verify(given: argparse.Namespace) -> int:
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
