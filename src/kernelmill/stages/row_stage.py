"""A pure row transform: rows in, rows out, in one process.

The source is streamed once, or twice for a stage that must see all rows before it can decide about one
(`unique`): its `scan` reads them first and keeps what it needs.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from kernelmill.base.no_gc import no_collector
from kernelmill.base.rows import TEST_ROWS, Drop, Row
from kernelmill.base.terminal import duration
from kernelmill.errors import BadRow, OutputError
from kernelmill.flow import StageResult
from kernelmill.settings.base import RowSettings
from kernelmill.settings.config import public, secret
from kernelmill.store import Output, Source, open_source
from kernelmill.store.output import test_path
from kernelmill.store.progress_source import ProgressSource


class RowStage(ABC):
    """The row handling of such a stage, and its part of the summary and the manifest."""

    @abstractmethod
    def take(self, row: Row) -> bytes | Drop:
        """The output row, or why there is none. Raises `BadRow`; only a decoded row may be dropped."""

    def summary(self) -> list[tuple[str, str]]:
        return []

    def details(self) -> dict[str, Any]:
        """Further entries of the manifest, besides the counts."""
        return {}


class ScanningStage(RowStage):
    """A stage that must see all rows before it takes the first one."""

    @abstractmethod
    def scan(self, row: Row) -> None:
        """Record what is needed from a row. Raises `BadRow`."""

    @abstractmethod
    def decide(self) -> None:
        """Called once, between the passes."""


class _Splits:
    """Counts the kept rows of each split of a Hub dataset.

    Rows are in split order, so the counts are enough to tell the split of each output row.
    """

    def __init__(self, source: Source) -> None:
        self._of = {file.label: file.split for file in source.files if file.split is not None}
        self._kept: dict[str, int] = dict.fromkeys(self._of.values(), 0)

    def count(self, row: Row) -> None:
        if self._of:
            self._kept[self._of[row.where.rpartition(":")[0]]] += 1

    def details(self) -> dict[str, Any]:
        return {"splits": self._kept} if self._kept else {}


def run_row_stage(
    name: str, settings: RowSettings, stage: RowStage, output_path: Path, max_rejected: float = 1.0
) -> StageResult:
    """Read the source of `settings`, run `stage` over its rows, and write rows, rejected rows and manifest.

    Raises `OutputError` and writes nothing if more than the share `max_rejected` of the rows is rejected.
    """
    started = time.monotonic()
    path = test_path(output_path) if settings.test_mode else output_path
    output = Output(path)
    opened = open_source(settings.source, settings.split, secret("HF_TOKEN"))
    source = ProgressSource(opened, TEST_ROWS if settings.test_mode else None)
    for file in source.files:
        output.refuse(file.path, "the source")
    reject = settings.on_bad_row == "reject"
    rows_in, splits = 0, _Splits(source)
    with output, no_collector():
        if isinstance(stage, ScanningStage):
            for row in source.rows():
                try:
                    stage.scan(row)
                except BadRow:
                    if not reject:
                        raise
            stage.decide()
        for row in source.rows():
            rows_in += 1
            try:
                taken = stage.take(row)
            except BadRow as bad:
                if not reject:
                    raise
                output.reject(row, bad.reason, "the row cannot be read")
                continue
            if isinstance(taken, bytes):
                output.keep(taken)
                splits.count(row)
            else:
                output.reject(row, taken.reason, taken.kind, readable=True)
        rejected = output.reasons.total()
        if rejected > max_rejected * rows_in:
            kinds = "; ".join(f"{number:,} {kind}" for kind, number in output.reasons.most_common(3))
            raise OutputError(
                f"{rejected:,} of {rows_in:,} rows would be rejected ({kinds}), --max-rejected allows {max_rejected:g}: nothing is written"
            )
        seconds = time.monotonic() - started
        details = {
            "source": source.origin,
            "seconds": round(seconds, 3),
            **splits.details(),
            **stage.details(),
        }
        output.commit(name, rows_in, public(settings), details)
    dry_run = getattr(settings, "dry_run", False)  # then the output is in a temporary folder
    print(f"{name} (dry run: nothing is written)" if dry_run else name)
    lines = [("rows in", f"{rows_in:,}"), ("kept", f"{output.kept:,}")]
    lines += [("rejected", f"{number:,}  {kind}") for kind, number in output.reasons.most_common()]
    lines += [*stage.summary(), ("time", duration(seconds)), *([] if dry_run else output.listing())]
    for label, value in lines:
        print(f"{label:<12}{value}")
    return StageResult((output.path, output.manifest_path), rows_in, output.kept, rejected)
