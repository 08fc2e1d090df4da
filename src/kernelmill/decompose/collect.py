"""`kernelmill collect`: gather the distinct parts of many decomposed models into one set of problems.

Two files are the same part if class `Model`, `get_inputs` and `get_init_inputs` have the same code; file
names and comments do not matter. Only proven parts are collected: every part of a model whose proof holds,
and of any other model the parts that its proven steps lead to. The layout is KernelBench's (kernels in
level1/, fusions in level2/, layers in level3/, models in level4/), most frequent first, so `problems import`
and `synthesize --problems` can read it directly. `collected.json` records how often each part occurs and
where.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from kernelmill.base.problem_layout import KERNELBENCH, natural
from kernelmill.base.python_text import parse_module
from kernelmill.base.terminal import plain
from kernelmill.base.whole_file import encoded
from kernelmill.decompose.command import LEVELS_HELP, levels_of
from kernelmill.decompose.levels import FOLDERS, LEVELS, Level
from kernelmill.decompose.model_folder import put_in_place, read_tree
from kernelmill.decompose.prove.command import model_folders
from kernelmill.decompose.write.tree_file import Node, TreeFile
from kernelmill.errors import OutputError, SourceError
from kernelmill.settings.options import ToolSettings, argument, option

RECORD = "collected.json"
_OWN = ("run_tests",)
_VARIANT = re.compile(r"_v\d+$")


@dataclass
class DistinctPart:
    """One distinct piece of work, with the text of the first file that contains it."""

    level: Level
    name: str
    code: str
    sha256: str
    node: Node
    models: Counter[str] = field(default_factory=Counter)
    """Number of occurrences, by model."""

    @property
    def instance_count(self) -> int:
        return self.models.total()


@dataclass
class Collected:
    works: list[DistinctPart] = field(default_factory=list)
    """Sorted by level, most frequent first."""
    models: dict[str, str] = field(default_factory=dict)
    """The source file of each collected model."""
    left_out: list[str] = field(default_factory=list)
    """Models that were not collected, one line each."""
    in_part: list[str] = field(default_factory=list)
    """Models that were collected in part, one line each."""
    not_written: Counter[Level] = field(default_factory=Counter)
    """Number of models decomposed without files of a level (`--levels`)."""


@dataclass(frozen=True, kw_only=True)
class CollectSettings(ToolSettings):
    """Collect the different kernels and fusions of decomposed models as one set of problems."""

    sources: tuple[Path, ...] = argument("results of kernelmill decompose", "OUT")
    output: Path = option(Path("problems"), "where the problems go", flag="-o", metavar="FOLDER")
    levels: tuple[Level, ...] = option(
        ("kernel", "fusion"),
        f"{LEVELS_HELP}, that are collected (default: 1,2)",
        parse=levels_of,
        metavar="1,2",
    )


def main(given: CollectSettings) -> int:
    target = given.output
    if (
        target.exists()
        and not (target / RECORD).is_file()
        and not (target.is_dir() and not any(target.iterdir()))
    ):
        raise OutputError(f"{target} exists and was not made by collect: name another folder with -o")
    folders = list(dict.fromkeys(folder for source in given.sources for folder in model_folders(source)))
    found = collect(folders, given.levels)
    if not found.works:
        why = f"; the first: {found.left_out[0]}" if found.left_out else ""
        if found.not_written:
            why += f"; decompose wrote no files of: {', '.join(found.not_written)} (its --levels)"
        models = f"{len(folders):,} decomposed model{'' if len(folders) == 1 else 's'}"
        raise SourceError(f"{models}, and no problem to collect{why}")
    write(found, target)
    for line in found.left_out:
        print(plain(f"left out: {line}"))
    for line in found.in_part:
        print(plain(f"in part: {line}"))
    print("collect")
    print(f"{'models':<12}{len(found.models):,}")
    for level in given.levels:
        mine = [work for work in found.works if work.level == level]
        uses = sum(work.instance_count for work in mine)
        without = (
            f"; not written for {found.not_written[level]:,} of the models"
            if found.not_written[level]
            else ""
        )
        print(f"{f'{level}s':<12}{len(mine):,} different, {uses:,} in all{without}")
    if any(KERNELBENCH in source.lower() for source in found.models.values()):
        print(
            f"{'benchmark':<12}some come from KernelBench: not for training a model that is measured with it"
        )
    print(f"{'output':<12}{target}")
    return 0


def collect(folders: Iterable[Path], levels: tuple[Level, ...]) -> Collected:
    found = Collected()
    works: dict[tuple[Level, str], DistinctPart] = {}
    for folder in folders:
        place = f"{folder.resolve().parent.name}/{folder.resolve().name}"
        if place in found.models:
            found.left_out.append(f"{folder}: there is another {place}")
            continue
        try:
            tree, _ = read_tree(folder)
            mine = list(_works(folder, tree, levels))
            if tree.metadata.verification_status != "PASS":
                every, proven = len(mine), proven_parts(folder)
                mine = [work for work in mine if work.node.path in proven]
                if not mine:
                    raise ValueError(f"its proof is {tree.metadata.verification_status}")
                found.in_part.append(
                    f"{folder}: its proof is {tree.metadata.verification_status}, {len(mine):,} of {every:,} parts are proven"
                )
        except OSError as error:
            found.left_out.append(f"{folder}: {error.filename} cannot be read ({error.strerror})")
            continue
        except ValueError as error:
            found.left_out.append(f"{folder}: {' '.join(str(error).split())}")
            continue
        found.models[place] = tree.metadata.source_file
        written = tree.metadata.levels or LEVELS
        found.not_written.update(level for level in levels if level not in written)
        for work in mine:
            known = works.setdefault((work.level, work.sha256), work)
            known.models[place] += work.node.instance_count
    found.works = sorted(
        works.values(),
        key=lambda work: (LEVELS.index(work.level), -work.instance_count, natural(work.name), work.sha256),
    )
    taken: Counter[str] = Counter()
    for work in found.works:
        taken[work.name] += 1
        if taken[work.name] > 1:
            work.name = f"{work.name}_v{taken[work.name]}"
    return found


def _works(folder: Path, tree: TreeFile, levels: tuple[Level, ...]) -> Iterable[DistinctPart]:
    for node in tree.nodes.values():
        if node.level not in levels:
            continue
        if node.path != f"{FOLDERS[node.level]}/{node.stem}.py":
            raise ValueError(f"{node.path} is not in the folder of a {node.level}")
        file = folder / node.path
        if not file.exists() and tree.metadata.levels is not None and node.level not in tree.metadata.levels:
            continue  # the model was decomposed with --levels
        code = file.read_bytes().decode("utf-8")
        yield DistinctPart(node.level, _VARIANT.sub("", node.stem), code, key_of(code), node)


def proven_parts(folder: Path) -> set[str]:
    """The files of a model that its proof covers; empty if there is no proof."""
    try:
        summary = json.loads((folder / "verification/step_verification_summary.json").read_bytes())
        return {str(name) for name in summary["proven_parts"]}
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def key_of(code: str) -> str:
    """Hash what a file computes: its code without docstrings, comments and its own test.

    Raises `ValueError` if the file is not valid Python.
    """
    try:
        tree = parse_module(code)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"is not valid Python: {error}") from None
    tree.body = [
        one
        for one in tree.body
        if not isinstance(one, ast.If) and not (isinstance(one, ast.FunctionDef) and one.name in _OWN)
    ]
    for one in ast.walk(tree):
        if (
            isinstance(one, ast.Module | ast.ClassDef | ast.FunctionDef)
            and ast.get_docstring(one, clean=False) is not None
        ):
            one.body = one.body[1:]
    imports = sorted(ast.dump(one) for one in tree.body if isinstance(one, ast.Import | ast.ImportFrom))
    rest = [ast.dump(one) for one in tree.body if not isinstance(one, ast.Import | ast.ImportFrom)]
    return hashlib.sha256("\n".join([*imports, *rest]).encode("utf-8", "surrogatepass")).hexdigest()


def write(found: Collected, target: Path) -> None:
    """Write the set atomically, replacing the output of an earlier collect."""
    temporary = target.with_name(f".{target.name}.tmp")
    numbers: Counter[Level] = Counter()
    record = []
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        for work in found.works:
            numbers[work.level] += 1
            number = LEVELS.index(work.level) + 1
            file = f"level{number}/{numbers[work.level]}_{work.name}.py"
            (temporary / file).parent.mkdir(parents=True, exist_ok=True)
            (temporary / file).write_bytes(work.code.encode())
            record.append(
                {
                    "file": file,
                    "level": work.level,
                    "name": work.name,
                    "sha256": work.sha256,
                    "instance_count": work.instance_count,
                    "models": dict(work.models),
                    "operations": work.node.operations,
                    "input_shapes": work.node.input_shapes,
                    "input_dtypes": work.node.input_dtypes,
                    "output_shapes": work.node.output_shapes,
                    "output_dtypes": work.node.output_dtypes,
                }
            )
        text = encoded(
            {"models": found.models, "left_out": found.left_out, "in_part": found.in_part, "problems": record}
        )
        (temporary / RECORD).write_bytes(text)
        put_in_place(temporary, target)
    except OSError as error:
        raise OutputError(f"{error.filename or target} cannot be written ({error.strerror})") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
