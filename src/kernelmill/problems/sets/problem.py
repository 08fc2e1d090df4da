"""A problem of a set, read from any source, and the results of its check.

Sources are those of `decontaminate --against`: a KernelBench checkout, its Hub dataset, a folder of problem
files, rows of KernelBook and others. A KernelBook module keeps its text; a class `Model` that is the module
is added, so that it is a problem like all others.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import count
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Struct

from kernelmill.base.problem_layout import KERNELBENCH
from kernelmill.base.rows import Info, Label, RowReader
from kernelmill.errors import BadRow, SourceError
from kernelmill.evaluate.task.offline_models import imports_transformers
from kernelmill.problems.benchmark_rows import is_benchmark, is_benchmark_set
from kernelmill.problems.facts import TensorFact
from kernelmill.problems.module_file import Convention
from kernelmill.problems.open_set import ProblemRow, open_problems, problem_code
from kernelmill.problems.source import read_source
from kernelmill.store import Source

_UNNUMBERED = -1
"""The id of a problem without a number, until the others have theirs."""
_NUMBERED = re.compile(r"^(\d+)_(.+)$", re.DOTALL)
_NOT_IN_NAMES = re.compile(r"[^\w.+-]")


class FullSize(Struct, frozen=True):
    """One run at the problem's own size."""

    mode: Literal["fake", "real"]
    convention: Convention
    inputs: list[TensorFact]
    outputs: list[TensorFact]
    parameters: int
    """The number of elements in all parameters."""
    flops: int
    """The FLOPs of products and convolutions."""
    kinds: dict[str, int]
    """Operations by kind."""
    operations: int


class Problem(Struct, frozen=True):
    level: int
    problem_id: int
    name: str
    """The name without its id: `ReLU`."""
    code: str
    where: str
    """Where it was read."""
    numbered: bool = True
    """Whether its file name includes its number.

    A problem that came without one keeps its name: `gpt_oss.py`.
    """

    @property
    def file(self) -> str:
        """The path in a set's folder."""
        number = f"{self.problem_id}_" if self.numbered else ""
        return f"level{self.level}/{number}{_NOT_IN_NAMES.sub('_', self.name)}.py"

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.code.encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def uses_hub(self) -> bool:
        """Whether it takes a model from `transformers`."""
        return imports_transformers(self.code)


class Checked(Struct, frozen=True):
    """The results of a check.

    `full` or `shrunk` is null if that run failed; `reasons` says why it is not admitted.
    """

    level: int
    problem_id: int
    name: str
    file: str
    sha256: str
    random_weights: bool
    """Whether its model is built from a configuration, with untrained weights."""
    full: FullSize | None
    full_error: str | None
    shrunk: dict[str, Any] | None
    """The size at which it ran on the CPU."""
    admitted: bool
    reasons: list[str]


class Rejected(Struct, frozen=True):
    where: str
    reason: str


class ReadSet(NamedTuple):
    name: str
    source: Source
    problems: list[Problem]
    """In order of level and id."""
    rejected: list[Rejected]
    """Entries that are no problem, and why."""
    benchmark: bool
    """Whether it is KernelBench or a part of it, under any name, or its rows are marked as a benchmark's."""


def read_problems(spec: str, token: str | None, level: int | None) -> ReadSet:
    return read_from(*open_problems(spec, token), level)


def read_from(name: str, source: Source, level: int | None) -> ReadSet:
    read = RowReader(ProblemRow)
    found: list[Problem] = []
    rejected: list[Rejected] = []
    marked = False
    for row in source.rows():
        given = read(row)
        marked = marked or is_benchmark(row)
        try:
            found.append(_problem(given, problem_code(row, given), row.where, level))
        except BadRow as error:
            rejected.append(Rejected(row.where, error.reason))
        except SourceError as error:
            rejected.append(Rejected(row.where, str(error)))
    taken: dict[tuple[int, int], Problem] = {}
    for one in sorted(found, key=lambda one: (one.level, one.problem_id)):
        if one.problem_id == _UNNUMBERED:
            continue
        first = taken.setdefault((one.level, one.problem_id), one)
        if first is not one:
            rejected.append(Rejected(one.where, f"its level and id are those of {first.where}"))
    _number(found, taken)
    problems = [taken[key] for key in sorted(taken)]
    return ReadSet(
        name, source, problems, rejected, marked or name == KERNELBENCH or is_benchmark_set(source.origin)
    )


def _number(found: list[Problem], taken: dict[tuple[int, int], Problem]) -> None:
    """Give each problem without a number the first free one in its level.

    Its file keeps its name unless that is taken.
    """
    files = {one.file for one in taken.values()}
    numbers: defaultdict[int, Iterator[int]] = defaultdict(lambda: count(1))
    for one in found:
        if one.problem_id != _UNNUMBERED:
            continue
        free = next(number for number in numbers[one.level] if (one.level, number) not in taken)
        mine = msgspec.structs.replace(one, problem_id=free, numbered=False)
        if mine.file in files:
            mine = msgspec.structs.replace(mine, numbered=True)
        files.add(mine.file)
        taken[one.level, free] = mine


def _problem(given: ProblemRow, code: str, where: str, level: int | None) -> Problem:
    extra = given.extra_info
    info = given.info if isinstance(given.info, Info) else None
    name = given.display_name or "Problem"
    number = next(
        filter(_is_given, (given.problem_id, extra.problem_id if extra else None, given.uuid)), None
    )
    numbered = _NUMBERED.match(name)
    if number is None and numbered:
        number = int(numbered[1])
    if numbered and str(number) == numbered[1]:
        name = numbered[2]
    own = next(filter(_is_given, (given.level, extra.level if extra else None)), level)
    text = _with_model(code, given.entry_point or given.module_name or (info.module_name if info else None))
    return Problem(_whole(own, 1), _whole(number, _UNNUMBERED), name, text, where)


def _is_given(value: Label) -> bool:
    return value is not None


def _whole(value: Label, otherwise: int) -> int:
    if value is None:
        return otherwise
    try:
        number = int(str(value).removeprefix("level_").removeprefix("level").removesuffix(".0"))
    except ValueError:
        number = -1
    if number < 0:
        raise SourceError(f"level and problem_id have to be whole numbers, this is {value!r}")
    return number


def _with_model(code: str, entry_point: str | None) -> str:
    """Return the text with a class `Model`. Raises `SourceError` if it has no module, or no inputs for it."""
    code = code.removeprefix("\ufeff")
    try:
        found = read_source(code, "Model")
    except SourceError:
        found = read_source(code, entry_point)
    if re.search(r"^def get_inputs\(", code, re.MULTILINE) is None:
        raise SourceError("it defines no get_inputs()")
    if found.entry_point == "Model":
        return code
    if "Model" in found.classes:
        raise SourceError(f"its class is {found.entry_point}, and it has another one called Model")
    added = f'\n\nclass Model({found.entry_point}):\n    """{found.entry_point}, under the name that problems have."""\n'
    if re.search(r"^def get_init_inputs\(", code, re.MULTILINE) is None:
        added += "\n\ndef get_init_inputs():\n    return []\n"
    return code.rstrip("\n") + "\n" + added
