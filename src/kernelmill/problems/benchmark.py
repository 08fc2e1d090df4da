"""Problem sets that training data must not contain, read from any source.

    ScalingIntelligence/KernelBench             a dataset on the Hub
    path/to/KernelBench                         a checkout, or its folder of level folders
    some/folder  rows.jsonl  rows.parquet       problem files or rows: KernelBench, KernelBook, evals,
                                                specifications, RL prompts
    kernelbench                                 what `kernelmill problems import` wrote to data/kernelbench
    bundled:problems                            what ships with kernelmill
    mine=some/folder                            any of these under a name of your choice

An unreadable row ends the command: a check against half a benchmark says little.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from kernelmill.base.parallel import mapped
from kernelmill.base.rows import Info, Label, Named, Row, RowReader, read_info
from kernelmill.errors import BadRow, ConfigError, SourceError
from kernelmill.problems.overlap import ProblemSet, fingerprints
from kernelmill.store import Source, open_source
from kernelmill.store.source import DATA

_NAMED = re.compile(r"^(?P<name>[A-Za-z_]\w*)=(?P<source>.+)$", re.ASCII | re.DOTALL)
_LEVEL = re.compile(r"^level_?\d+$")
_CHUNK = 32


class _Extra(Struct):
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
    extra_info: _Extra | None = None


class Benchmark:
    """A named problem set, ready for comparison."""

    def __init__(self, name: str, source: Source, share: float) -> None:
        self.name = name
        self.source = source
        self.problems = ProblemSet(share)
        self.labels: list[str] = []
        """The label of each problem: `level1/19_ReLU`."""
        self.not_python: list[str] = []
        """Problems that do not parse, and are compared as text."""
        self.empty: list[str] = []
        """Files with neither a class nor a function, which are no problems: an `__init__.py`, say."""
        self._sha = hashlib.sha256()
        for chunk, found in self._analysed():
            for (label, code), one in zip(chunk, found, strict=True):
                if not one.key:
                    self.empty.append(label)
                    continue
                if not one.parsed:
                    self.not_python.append(label)
                self.problems.add(one)
                self.labels.append(label)
                self._sha.update(hashlib.sha256(code.encode("utf-8", "surrogatepass")).digest())
        if not self.labels:
            raise SourceError(f"{source.name}: no problem in it, so nothing can be compared with it")
        self.problems.finish()

    def _analysed(self) -> Iterator[tuple[list[tuple[str, str]], Any]]:
        chunks: list[list[tuple[str, str]]] = []

        def sent() -> Iterator[list[str]]:
            for chunk in _chunks(self.source):
                chunks.append(chunk)
                yield [code for _, code in chunk]

        for found in mapped(fingerprints, sent()):
            yield chunks.pop(0), found

    def details(self) -> dict[str, Any]:
        """Return the origin of the problems, for the manifest."""
        return {
            "source": self.source.origin,
            "problems": len(self.labels),
            "sha256": self._sha.hexdigest(),
            "not_python": self.not_python,
            "empty": self.empty,
        }


def read_benchmarks(specs: tuple[str, ...], share: float, token: str | None) -> list[Benchmark]:
    """Read all benchmarks. Each must have a name of its own."""
    opened: dict[str, tuple[str, Source]] = {}
    for spec in specs:
        name, source = open_problems(spec, token)
        if name in opened:
            raise ConfigError(
                f"--against: {opened[name][0]} and {spec} are both called {name}: give one another name (NAME=SOURCE)"
            )
        opened[name] = (spec, source)
    return [Benchmark(name, source, share) for name, (_, source) in opened.items()]


def open_problems(spec: str, token: str | None) -> tuple[str, Source]:
    """Open a problem set by name or location; return its name and its rows."""
    named = _NAMED.match(spec)
    place = named["source"] if named else spec
    folder = _level_folders(place) or _imported(place)
    source = open_source(str(folder or place), token=token)
    if folder is not None:
        # A checkout contains other Python files as well.
        source.files = [file for file in source.files if _LEVEL.match(file.path.relative_to(folder).parts[0])]
    name = named["name"] if named else _name_of(str(folder or place))
    if not name:
        raise ConfigError(
            f"{spec}: cannot derive a name for this problem set; use NAME=SOURCE, such as kernelbench={spec}"
        )
    return name, source


def _level_folders(place: str) -> Path | None:
    """Return the folder of KernelBench's level folders, if `place` is that or a checkout."""
    path = Path(place).expanduser()
    for folder in (path, path / "KernelBench"):
        if folder.is_dir() and any(_LEVEL.match(child.name) for child in folder.iterdir() if child.is_dir()):
            return folder
    return None


def _imported(place: str) -> Path | None:
    """Return the folder of an imported set by its name, unless something else here has that name."""
    folder = Path("data") / place
    is_name = re.fullmatch(r"\w+", place, re.ASCII) is not None and not Path(place).exists()
    return folder if is_name and (folder / "problems.json").is_file() else None


def _name_of(place: str) -> str:
    """Derive a name.

    `ScalingIntelligence/KernelBench@main` becomes `kernelbench`, `data/My Problems.jsonl` becomes
    `my_problems`.
    """
    path = Path(place).expanduser()
    if path.exists():
        path = path.resolve()
        name = f"{path.parent.name}_{path.name}" if _LEVEL.match(path.name) else path.name
    else:
        name = place if place.startswith("bundled:") else place.partition("@")[0].rpartition("/")[2]
    for end in (*DATA, ".py"):
        name = name.removesuffix(end)
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def _chunks(source: Source) -> Iterator[list[tuple[str, str]]]:
    read = RowReader(ProblemRow)
    chunk: list[tuple[str, str]] = []
    for row in source.rows():
        chunk.append(_problem(row, read(row)))
        if len(chunk) == _CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _problem(row: Row, given: ProblemRow) -> tuple[str, str]:
    """Return a problem's label and its code."""
    code = problem_code(row, given)
    extra = given.extra_info or _Extra()
    name = given.called
    numbers = (given.problem_id, extra.problem_id, given.uuid, given.example_id)
    number = next((_text(value) for value in numbers if value is not None), "")
    if number and not name.startswith(f"{number}_"):
        name = f"{number}_{name}" if name else number
    level = _text(next((value for value in (given.level, extra.level) if value is not None), ""))
    if level:
        name = f"{level if level.startswith('level') else f'level{level}'}/{name}"
    return name or row.where, code


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


def _text(value: Label) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
