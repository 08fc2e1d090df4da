"""Open a problem set by name or location.

ScalingIntelligence/KernelBench             a dataset on the Hub
path/to/KernelBench                         a checkout, or its folder of level folders
some/folder  rows.jsonl  rows.parquet       problem files or rows: KernelBench, KernelBook, evals,
                                            specifications, RL prompts
kernelbench                                 what `kernelmill problems import` wrote to data/kernelbench
bundled:problems                            what ships with kernelmill
mine=some/folder                            any of these under a name of your choice
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from msgspec import Struct

from kernelmill.base.problem_layout import LEVEL, level_folders
from kernelmill.base.rows import Info, Label, Named, Row, read_info
from kernelmill.errors import BadRow, ConfigError
from kernelmill.problems.benchmark_rows import SET_RECORD
from kernelmill.store import Source, open_source
from kernelmill.store.source import DATA

_NAMED = re.compile(r"^(?P<name>[A-Za-z_]\w*)=(?P<source>.+)$", re.ASCII | re.DOTALL)


class ExtraInfo(Struct):
    """The column `extra_info` of RL prompt rows."""

    level: Label = None
    problem_id: Label = None
    problem_name: str | None = None


class ProblemRow(Named):
    """A row of any kind that holds a problem."""

    python_code: str | None = None
    code: str | None = None
    info: Info | str | None = None
    label: Any = None
    name: str | None = None
    module_name: str | None = None
    entry_point: str | None = None
    level: Label = None
    problem_id: Label = None
    uuid: Label = None
    example_id: Label = None
    extra_info: ExtraInfo | None = None


def open_problems(spec: str, token: str | None) -> tuple[str, Source]:
    """Open a problem set by name or location; return its name and its rows."""
    named = _NAMED.match(spec)
    place = named["source"] if named else spec
    levels = level_folders(Path(place).expanduser())
    folder = levels[0].parent if levels else _imported(place)
    source = open_source(str(folder or place), token=token)
    if folder is not None:
        # A checkout contains other Python files as well.
        source.files = [
            file for file in source.files if LEVEL.fullmatch(file.path.relative_to(folder).parts[0])
        ]
    name = named["name"] if named else _name_of(str(folder or place))
    if not name:
        raise ConfigError(
            f"{spec}: cannot derive a name for this problem set; use NAME=SOURCE, such as kernelbench={spec}"
        )
    return name, source


def _imported(place: str) -> Path | None:
    """Return the folder of an imported set by its name, unless something else here has that name."""
    folder = Path("data") / place
    is_name = re.fullmatch(r"\w+", place, re.ASCII) is not None and not Path(place).exists()
    return folder if is_name and (folder / SET_RECORD).is_file() else None


def _name_of(place: str) -> str:
    """Derive a name.

    `ScalingIntelligence/KernelBench@main` becomes `kernelbench`, `data/My Problems.jsonl` becomes
    `my_problems`.
    """
    path = Path(place).expanduser()
    if path.exists():
        path = path.resolve()
        name = f"{path.parent.name}_{path.name}" if LEVEL.fullmatch(path.name) else path.name
    else:
        name = place if place.startswith("bundled:") else place.partition("@")[0].rpartition("/")[2]
    for end in (*DATA, ".py"):
        name = name.removesuffix(end)
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def problem_code(row: Row, given: ProblemRow) -> str:
    """Return the problem's source, from whichever column this kind of row has it in. Raises `BadRow`."""
    if isinstance(given.info, str):
        given.info = read_info(row.where, given.info)
    info = given.info
    codes = (info.python_code if info else None, given.python_code, given.code, given.label)
    code = next((text for text in codes if isinstance(text, str)), None)
    if code is None:
        raise BadRow(row.where, "no problem (looked in info.python_code, python_code, code and label)")
    return code
