"""Benchmarks that training data must not contain, ready for comparison. Their problems come from `open_set`.

An unreadable row ends the command: a check against half a benchmark says little.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from kernelmill.base.parallel import mapped
from kernelmill.base.rows import Label, Row, RowReader
from kernelmill.errors import ConfigError, SourceError
from kernelmill.problems.open_set import ExtraInfo, ProblemRow, open_problems, problem_code
from kernelmill.problems.similarity.overlap import FingerprintIndex, fingerprints
from kernelmill.store import Source

_CHUNK = 32


class Benchmark:
    """A named problem set, ready for comparison."""

    def __init__(self, name: str, source: Source, share: float) -> None:
        self.name = name
        self.source = source
        self.problems = FingerprintIndex(share)
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
    extra = given.extra_info or ExtraInfo()
    name = given.display_name
    numbers = (given.problem_id, extra.problem_id, given.uuid, given.example_id)
    number = next((_text(value) for value in numbers if value is not None), "")
    if number and not name.startswith(f"{number}_"):
        name = f"{number}_{name}" if name else number
    level = _text(next((value for value in (given.level, extra.level) if value is not None), ""))
    if level:
        name = f"{level if level.startswith('level') else f'level{level}'}/{name}"
    return name or row.where, code


def _text(value: Label) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
