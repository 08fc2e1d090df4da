"""`kernelmill unique`: keep the row with the best reward of each module; of equals, the first.

`--by` decides when two modules are the same:

    name        the same name: the problem's where the row has one, because in KernelBench every class is
                `Model`, else the class's; loses different modules that share a name, such as `Block` or `Net`
    structure   the same code, whatever the names
    near        the same structure, or nearly the same code: MinHash candidates, each confirmed by the exact
                share of code in common

Every dropped row says which row it duplicates and how similar they are.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from kernelmill.base.rows import Drop, Info, Named, Row, RowReader, read_info
from kernelmill.flow import StageResult
from kernelmill.problems.similarity.modules import Modules
from kernelmill.settings.fields import UniqueSettings
from kernelmill.stages.row_stage import ScanningStage, run_row_stage


class _ClassName(Struct):
    module_name: str


class _NameRow(Named, kw_only=True):
    """The columns for `--by name`, which does not decode code."""

    reward: float
    info: _ClassName | str


class _CodeRow(Named, kw_only=True):
    reward: float
    info: Info | str


_NO_ROW = -1
_CLASS = re.compile(r"^class\s+(\w+)", re.MULTILINE)
COMPARED = 16 << 20
"""Bytes of a source file up to which `--by name` also counts the other ways without `--compare`. Code
analysis takes longer than all other work."""


class Unique(ScanningStage):
    """The stage: `scan` records every row, `decide` groups them, `take` keeps the best of each group."""

    def __init__(self, by: str, similarity: float, compare: bool, modules: Modules) -> None:
        self._by = by
        self._similarity = similarity
        self._reads_code = compare or by != "name"
        self._read: RowReader[_CodeRow] | RowReader[_NameRow] = (
            RowReader(_CodeRow) if self._reads_code else RowReader(_NameRow)
        )
        self._modules = modules
        self._seen = array("q")
        """For each row, its number among the readable rows, or `_NO_ROW`."""
        self._rewards = array("d")
        self._where: list[str] = []
        self._names: list[str] = []
        self._texts = array("q")
        self._places = array("q")
        """For each readable row, the position of its class in its file."""
        self._best: Sequence[int] = ()
        """For each readable row, the best row of its group."""
        self._kept: dict[str, int] = {}
        self._told: dict[int, str] = {}
        self._kind = f"a better or earlier row of the same module ({by})"

    def scan(self, row: Row) -> None:
        read = self._read(row)
        if isinstance(read.info, str):
            read.info = read_info(row.where, read.info)
        if self._reads_code:
            assert isinstance(read.info, Info)
            self._texts.append(self._modules.add(read.info.python_code))
            self._places.append(_place(read.info))
        if row.index > len(self._seen):
            self._seen.extend([_NO_ROW] * (row.index - len(self._seen)))
        self._seen.append(len(self._rewards))
        self._rewards.append(read.reward)
        self._where.append(row.where)
        self._names.append(read.display_name)

    def decide(self) -> None:
        self._modules.finish()
        ways: dict[str, Sequence[Hashable]] = {"name": self._names}
        if self._reads_code:
            near = self._modules.near(self._similarity)
            modules = [self._modules.module_of(text) for text in self._texts]
            ways["structure"] = list(zip(modules, self._places, strict=True))
            ways["near"] = [
                (near.root(module), place) for module, place in zip(modules, self._places, strict=True)
            ]
        self._kept = {way: len(set(groups)) for way, groups in ways.items()}
        best: dict[Hashable, int] = {}
        for number, group in enumerate(ways[self._by]):
            held = best.setdefault(group, number)
            if self._rewards[number] > self._rewards[held]:
                best[group] = number
        self._best = array("q", (best[group] for group in ways[self._by]))

    def take(self, row: Row) -> bytes | Drop:
        number = self._seen[row.index] if row.index < len(self._seen) else _NO_ROW
        if number == _NO_ROW:
            self._read(row)  # raises the row's error again
        best = self._best[number]
        if best == number:
            return row.raw
        kept = self._told.get(best)
        if kept is None:
            kept = self._told[best] = (
                f"duplicates {self._where[best]} ({self._names[best]}, reward {self._rewards[best]:g}): "
            )
        how = self._how(number, best)
        return Drop(f"{kept}{how}, reward {self._rewards[number]:g}", self._kind)

    def _how(self, number: int, best: int) -> str:
        if self._by == "name":
            return "the same name"
        one, other = (self._modules.module_of(self._texts[row]) for row in (number, best))
        if one == other:
            return "the same code"
        return f"{self._modules.alike(one, other):.0%} of the code in common"

    def summary(self) -> list[tuple[str, str]]:
        kept = ", ".join(f"--by {way} {number:,}" for way, number in self._kept.items())
        return [("would keep", kept if self._reads_code else f"{kept} (--compare counts the other ways)")]

    def details(self) -> dict[str, Any]:
        return {"modules": self._kept}


def _place(info: Info) -> int:
    """The position of a row's class among the classes of its file, from the end.

    A file may hold several modules.
    """
    classes = _CLASS.findall(info.python_code)
    return classes[::-1].index(info.module_name) if info.module_name in classes else 0


def unique(settings: UniqueSettings) -> StageResult:
    """Evals rows in; the best row of each module out, unchanged."""
    file = Path(settings.source).expanduser()
    compare = settings.compare or not file.is_file() or file.stat().st_size <= COMPARED
    with Modules() as modules:
        stage = Unique(settings.by, settings.similarity, compare, modules)
        return run_row_stage("unique", settings, stage, settings.output)
