"""`kernelmill decontaminate`: find rows that contain a benchmark problem.

Each row gets a column `contaminated_<benchmark>` per benchmark: null, or the problem that its module is or
contains, how it was detected, and the share of the problem found (`kernelmill.problems.similarity.overlap`). With
`--drop` such rows are rejected instead, and the others are copied unchanged. Compares the module of a row,
not its prompt or answer.
"""

from __future__ import annotations

from array import array
from collections import Counter
from typing import Any, NamedTuple

from kernelmill.base.columns import CONTAMINATED
from kernelmill.base.rows import Drop, ModuleCodeReader, Row, with_columns
from kernelmill.base.terminal import say
from kernelmill.flow import StageResult
from kernelmill.problems.benchmark import Benchmark, read_benchmarks
from kernelmill.problems.similarity.each_text import EachText
from kernelmill.problems.similarity.overlap import FLOOR, NGRAM, Fingerprint, Match, fingerprints
from kernelmill.settings.config import secret
from kernelmill.settings.fields import DecontaminateSettings
from kernelmill.stages.row_stage import ScanningStage, run_row_stage
from kernelmill.store import Output
from kernelmill.store.output import test_path

MOST_HIT = 5


class _Matches(NamedTuple):
    found: tuple[tuple[Match, ...], ...]
    """Matches in each benchmark, the most certain first."""
    parsed: bool


class Decontaminate(ScanningStage):
    """The stage. `scan` compares every distinct text once, with worker processes; `take` marks or drops rows.

    Use as a context manager.
    """

    def __init__(self, benchmarks: list[Benchmark], share: float, drop: bool) -> None:
        self._benchmarks = benchmarks
        self._share = share
        self._drop = drop
        self._read = ModuleCodeReader()
        self._texts = EachText(fingerprints, self._match)
        self._text_of_row = array("q")
        """Number of each row's text; -1 for a row that cannot be read."""
        self._matches_of: list[_Matches] = []
        self._known: dict[_Matches, _Matches] = {}
        """Interned results: most rows share the same one."""
        self._rows: list[Counter[str]] = [Counter() for _ in benchmarks]
        """Contaminated rows by kind of match, for each benchmark."""
        self._hits: list[Counter[int]] = [Counter() for _ in benchmarks]
        self._not_python = 0

    def __enter__(self) -> Decontaminate:
        return self

    def __exit__(self, *_: object) -> None:
        self._texts.__exit__()

    def scan(self, row: Row) -> None:
        _, code = self._read(row)
        self._text_of_row.extend([-1] * (row.index - len(self._text_of_row)))
        self._text_of_row.append(self._texts.add(code))

    def decide(self) -> None:
        self._texts.finish()

    def _match(self, module: Fingerprint) -> None:
        found = tuple(tuple(benchmark.problems.matches(module)) for benchmark in self._benchmarks)
        matches = _Matches(found, module.parsed)
        self._matches_of.append(self._known.setdefault(matches, matches))

    def take(self, row: Row) -> bytes | Drop:
        text = self._text_of_row[row.index] if row.index < len(self._text_of_row) else -1
        if text < 0:
            self._read(row)  # raises the row's error again
        matches = self._matches_of[text]
        self._not_python += not matches.parsed
        columns: dict[str, Any] = {}
        reasons: dict[str, str] = {}
        for n, (benchmark, found) in enumerate(zip(self._benchmarks, matches.found, strict=True)):
            columns[f"{CONTAMINATED}{benchmark.name}"] = None
            if not found:
                continue
            surest = found[0]
            self._rows[n][surest.how] += 1
            self._hits[n].update(match.problem for match in found)
            label, share = benchmark.labels[surest.problem], round(surest.share, 4)
            columns[f"{CONTAMINATED}{benchmark.name}"] = {"problem": label, "how": surest.how, "share": share}
            how = "the same code" if surest.how == "same code" else f"{share:.0%} of its n-grams"
            reasons[benchmark.name] = f"{benchmark.name} {label}: {how}"
        if not self._drop:
            return with_columns(row.raw, columns)
        if reasons:
            return Drop("; ".join(reasons.values()), f"contaminated ({', '.join(reasons)})")
        return row.raw

    def summary(self) -> list[tuple[str, str]]:
        lines = []
        if self._not_python:
            lines.append(("not Python", f"{self._not_python:,} rows, compared as text only"))
        for benchmark, rows, hits in zip(self._benchmarks, self._rows, self._hits, strict=True):
            most = ", ".join(f"{benchmark.labels[at]} ({number:,})" for at, number in _most(hits))
            lines += [
                ("benchmark", f"{benchmark.name}, {len(benchmark.labels):,} problems"),
                ("  same code", f"{rows['same code']:,} rows"),
                ("  n-grams", f"{rows['n-grams']:,} rows"),
                ("  hit", f"{len(hits):,} problems{': ' if most else ''}{most}"),
            ]
        return lines

    def details(self) -> dict[str, Any]:
        found = {}
        for benchmark, rows, hits in zip(self._benchmarks, self._rows, self._hits, strict=True):
            found[benchmark.name] = {
                **benchmark.details(),
                "rows": {"same_code": rows["same code"], "n_grams": rows["n-grams"]},
                "problems_hit": len(hits),
                "most_hit": {benchmark.labels[at]: number for at, number in _most(hits)},
            }
        rules = {"n": NGRAM, "fewest_runs": FLOOR, "share": self._share}
        return {"benchmarks": found, "n_grams": rules, "rows_not_python": self._not_python}


def _most(hits: Counter[int]) -> list[tuple[int, int]]:
    """The problems with most hits.

    Ties are broken by benchmark order, so that the order of rows does not matter.
    """
    return sorted(hits.items(), key=lambda hit: (-hit[1], hit[0]))[:MOST_HIT]


def decontaminate(settings: DecontaminateSettings) -> StageResult:
    """Rows with a module in; the rows with `contaminated_<benchmark>` out, or only clean rows (`drop`)."""
    benchmarks = read_benchmarks(settings.against, settings.share, secret("HF_TOKEN"))
    output = Output(test_path(settings.output) if settings.test_mode else settings.output)
    for benchmark in benchmarks:
        for file in benchmark.source.files:
            output.refuse(file.path, f"part of the benchmark {benchmark.name}")
        _tell(benchmark)
    with Decontaminate(benchmarks, settings.share, settings.drop) as stage:
        return run_row_stage("decontaminate", settings, stage, settings.output)


def _tell(benchmark: Benchmark) -> None:
    say(f"{benchmark.name}: {len(benchmark.labels):,} problems from {benchmark.source.name}")
    for what, labels in (
        ("not Python, compared as text only", benchmark.not_python),
        ("left out, without a class or a function", benchmark.empty),
    ):
        if labels:
            more = f" and {len(labels) - 3:,} more" if len(labels) > 3 else ""
            say(f"{benchmark.name}: {len(labels):,} {what}: {', '.join(labels[:3])}{more}")
