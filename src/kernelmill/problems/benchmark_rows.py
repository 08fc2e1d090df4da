"""Detection of benchmark rows and sets, which must stay out of training data.

A row is a benchmark's if it has the column `benchmark: true`, which exports of imported benchmarks and
answers to their problems have, or a `data_source` of KernelBench's prompts, which prompts made elsewhere
have. A set is recognised by its name, its location, or its import record. Code is not compared:
`decontaminate` does that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from kernelmill.base.problem_layout import KERNELBENCH
from kernelmill.base.rows import Row
from kernelmill.errors import SourceError
from kernelmill.store import Source

_MARK = re.compile(rb'"benchmark"|"kernel_bench_')
"""A cheap first test: hardly any row matches, so most rows are never decoded."""
SET_RECORD = "problems.json"
"""The record of an imported set, in its folder."""


class _Set(msgspec.Struct):
    benchmark: bool = False


class _Marked(msgspec.Struct):
    benchmark: Any = None
    data_source: Any = None
    extra_info: Any = None


_marked = msgspec.json.Decoder(_Marked)


class NoBenchmark(Source):
    """The rows of another source. Raises `SourceError` at the first row of a benchmark."""

    def __init__(self, source: Source) -> None:
        super().__init__(source.name, source.files, source.origin)
        self._all = source

    def rows(self) -> Iterator[Row]:
        for row in self._all.rows():
            if _MARK.search(row.raw) and is_benchmark(row):
                raise SourceError(
                    f"{row.where}: a row of a benchmark, which no training set should hold: leave it out, or say --allow-benchmark"
                )
            yield row


def is_benchmark_set(origin: Mapping[str, Any]) -> bool:
    """Whether a source is KernelBench or was imported as a benchmark.

    KernelBench may be its Hub dataset, a checkout or a part of one.
    """
    if origin.get("kind") == "several":
        return any(map(is_benchmark_set, origin["sources"]))
    if repository := origin.get("repo"):
        return KERNELBENCH in str(repository).lower().split("/")
    place = Path(str(origin.get("path", ""))).resolve()
    if KERNELBENCH in [part.lower() for part in place.parts[-3:]]:
        return True
    for folder in (place, place.parent):
        try:
            return msgspec.json.decode((folder / SET_RECORD).read_bytes(), type=_Set).benchmark
        except (FileNotFoundError, NotADirectoryError):
            continue
        except msgspec.DecodeError:
            return False  # a file of that name from another program
    return False


def is_benchmark(row: Row) -> bool:
    try:
        found = _marked.decode(row.raw)
    except (msgspec.DecodeError, RecursionError):
        return False  # not a row; whoever decodes it reports a better error
    extra = found.extra_info if isinstance(found.extra_info, dict) else {}
    sources = (found.data_source, extra.get("data_source"))
    named = any(isinstance(source, str) and source.startswith("kernel_bench_") for source in sources)
    return found.benchmark is True or extra.get("benchmark") is True or named
