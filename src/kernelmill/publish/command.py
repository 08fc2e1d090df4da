"""`kernelmill publish`: publish rows as a dataset, in a folder or on the Hub.

Each dataset is built completely before anything at its target changes, and then published atomically. The
datasets of one command are published one after the other: a failure leaves the earlier ones published.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from kernelmill.base.rows import TEST_ROWS
from kernelmill.base.terminal import duration, size, tell
from kernelmill.errors import ConfigError, OutputError, SourceError
from kernelmill.flow import StageResult
from kernelmill.problems.benchmark_rows import NoBenchmark
from kernelmill.publish.changes import compare
from kernelmill.publish.dataset import Built, DatasetSpec, build
from kernelmill.publish.folder import FolderTarget
from kernelmill.publish.jobs import Job, find_jobs
from kernelmill.publish.lineage import Lineage
from kernelmill.publish.target import Present, Target
from kernelmill.settings.config import secret
from kernelmill.settings.fields import PublishSettings
from kernelmill.stages.source_choice import source_line
from kernelmill.store import Source, open_source
from kernelmill.store.progress_source import ProgressSource
from kernelmill.store.source import DataFile

MUCH_SMALLER = 0.5
"""Ask before replacing a dataset with one that has less than this share of its rows."""


def publish(settings: PublishSettings) -> StageResult:
    """Any rows in; datasets out, each with splits, card and manifest, in a folder or on the Hub."""
    jobs, notes = find_jobs(settings)
    token = secret("HF_TOKEN")
    if token is None and not settings.dry_run and any(job.folder is None for job in jobs):
        raise ConfigError(
            "HF_TOKEN is not set, and the Hub needs it: put a token with write access into .env, or use --to folder:PATH"
        )
    sources = [_source(settings, job, token) for job in jobs]  # first: one bad source stops all of them
    made = [_publish_one(settings, job, source, token) for job, source in zip(jobs, sources, strict=True)]
    for note in notes:
        print(note)
    rows = sum(sum(built.rows.values()) for built in made)
    results = tuple(
        (str(job.folder or job.to), f"dataset: {_rows(built)}") for job, built in zip(jobs, made, strict=True)
    )
    if settings.dry_run or settings.test_mode or any(job.folder is None for job in jobs):
        # Others may change a dataset on the Hub, so it has to be checked in every run.
        return StageResult((), rows, rows, results=results)
    files = [
        job.folder / name for job, built in zip(jobs, made, strict=True) if job.folder for name in built.files
    ]
    return StageResult(tuple(files), rows, rows, results=results)


def _source(settings: PublishSettings, job: Job, token: str | None) -> Source:
    source = open_source(job.source, settings.split, token)
    if Lineage(source).made_in_test_mode and not settings.test_mode:
        raise SourceError(f"{job.source} was made in test mode: publish what a real run makes")
    watched = ProgressSource(source, TEST_ROWS if settings.test_mode else None)
    return watched if settings.allow_benchmark else NoBenchmark(watched)


def _publish_one(settings: PublishSettings, job: Job, source: Source, token: str | None) -> Built:
    started = time.monotonic()
    how_split = (
        "none"
        if settings.split_by == "auto" and job.dataset_name in ("raw", "synthetic")
        else settings.split_by
    )
    wanted = DatasetSpec(
        source,
        job.name,
        None if job.folder else job.to,
        job.dataset_name,
        how_split,
        settings.validation,
        settings.seed,
        settings.similarity,
        tuple(filter(None, (name.strip() for name in settings.json_columns.split(",")))),
        settings.license,
        settings.model_dump(
            mode="json", include={"split_by", "validation", "seed", "similarity", "json_columns", "license"}
        ),
    )
    with _target(settings, job, token) as target:
        # Printed before anything is sent, so that the user can still stop a wrong source or target.
        tell("publish" + (" (dry run: nothing is changed)" if settings.dry_run else ""))
        tell(source_line(job.source, job.why))
        tell(f"{'target':<12}{target.label}")
        present = target.look()
        built = build(wanted, target.staging())
        lines: list[tuple[str, str]] = []
        if settings.dry_run:
            lines += _would_change(built, present, target.to_send(built))
            if job.folder is None and token is None:
                lines.append(("note", "HF_TOKEN is not set: a private dataset would not be seen"))
        else:
            _ask(settings, target, built, present)
            lines += _done(built, target.put(built), settings.test_mode)
    lines += [("note", note) for note in built.notes]
    lines.append(("time", duration(time.monotonic() - started)))
    for label, value in lines:
        print(f"{label:<12}{value}")
    return built


def _target(settings: PublishSettings, job: Job, token: str | None) -> Target:
    if job.folder is not None:
        return FolderTarget(job.folder)
    from kernelmill.publish.hub import HubTarget

    return HubTarget(job.to, token, settings.public)


def _ask(settings: PublishSettings, target: Target, built: Built, present: Present | None) -> None:
    """Ask before rows or manual edits are lost. Without a terminal the answer is no."""
    if present is None or settings.yes:
        return
    before, after = present.count_rows(), sum(built.rows.values())
    if after < MUCH_SMALLER * before:
        question = f"{target.label} has {before:,} rows, and would have {after:,}"
    elif present.edited and target.forgets:
        question = f"{', '.join(present.edited)} in {target.label} was changed by hand, which would be lost"
    else:
        return
    if not sys.stdin.isatty():
        raise OutputError(f"{question}: nothing is changed; if that is meant, say --yes")
    print(f"{question}. Go on? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise OutputError("nothing is changed")


def _done(built: Built, where: str | None, test_mode: bool) -> list[tuple[str, str]]:
    if where is None:
        return [*_sizes(built), ("done", "nothing to change: it is there already")]
    what = "the first rows only, for it is test mode" if test_mode else f"{len(built.files)} files"
    return [*_sizes(built), ("done", f"{where} ({what})")]


def _sizes(built: Built) -> list[tuple[str, str]]:
    return [("rows", f"{_rows(built)} ({len(built.columns)} columns)"), ("size", size(built.size))]


def _rows(built: Built) -> str:
    return ", ".join(f"{name} {number:,}" for name, number in built.rows.items())


def _would_change(built: Built, present: Present | None, to_send: int) -> list[tuple[str, str]]:
    new = {
        split: [
            DataFile(file.path, name)
            for name, file in built.files.items()
            if name.startswith(f"data/{split}-")
        ]
        for split in built.rows
    }
    changes = compare(
        present.splits() if present else {}, new, present.columns() if present else None, built.columns
    )
    lines: list[tuple[str, Any]] = list(changes.splits.items())
    if present is None:
        lines.insert(0, ("now", "nothing is there: it would be made"))
    if changes.moved:
        lines.append(("moved", f"{changes.moved:,} of the rows removed and added only change sides"))
    lines += [("schema", line) for line in changes.columns]
    if present and present.edited:
        lines.append(("by hand", f"{', '.join(present.edited)} was changed by hand, and would be replaced"))
    lines.append(("to send", size(to_send) if to_send else "nothing"))
    return [(label, str(value)) for label, value in lines]
