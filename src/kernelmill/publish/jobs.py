"""Resolve the command line of `publish` to sources and targets.

The names `filtered`, `unique`, `synthetic` and `raw` stand for the files that the stages write. Each has
its own target; `all` means the first three. Another source that goes to such a target still counts as
that set (`dataset_name`). In test mode named datasets go to folders, because nothing is uploaded. The
variant without reasoning (`-no-reasoning`, from `kernelmill strip`) is published along with its set if
its file exists. A folder that has the name of a dataset is given as `./filtered`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from kernelmill.curate.strip import stripped_path
from kernelmill.errors import ConfigError, SourceError
from kernelmill.settings.fields import MAKERS, NO_REASONING, PublishSettings
from kernelmill.stages.source_choice import test_mode_source
from kernelmill.store.output import test_path
from kernelmill.store.source import DATA

ALL = ("filtered", "unique", "synthetic")
TEST_FOLDER = "folder:outputs/hub"
_REPO = re.compile(r"[\w.-]+/[\w.-]+")


class Job(NamedTuple):
    """One dataset to publish."""

    source: str
    dataset_name: str | None
    to: str
    """`folder:PATH`, or `org/name`."""
    why: str
    """Why this source was chosen, for the user."""

    @property
    def name(self) -> str:
        return Path(self.to.removeprefix("folder:")).name

    @property
    def folder(self) -> Path | None:
        return Path(self.to.removeprefix("folder:")) if self.to.startswith("folder:") else None


def find_jobs(settings: PublishSettings) -> tuple[list[Job], list[str]]:
    """Return the datasets to publish, and notes about what is not published.

    Raises before anything is done.
    """
    to = _target(settings.to) if settings.to is not None else None
    names = ALL if settings.source == "all" else (settings.source,)
    if names[0] not in (*ALL, "raw"):
        if to is None:
            raise ConfigError("say where to: --to org/name for the Hub, or --to folder:PATH")
        return [
            _checked(settings, Job(settings.source, _name_of(settings, to), to, settings.origin("source")))
        ], []
    if settings.source == "all" and to is not None and not to.startswith("folder:"):
        raise ConfigError(
            "all goes to more than one dataset: leave --to out, or name a folder (--to folder:PATH)"
        )
    jobs, notes = [], []
    if settings.test_mode and to is None:
        settings, to = settings.model_copy(update={"to": TEST_FOLDER}), TEST_FOLDER
        notes.append("test mode uploads nothing: what would be uploaded is in these folders")
    for dataset_name in names:
        source = _named(settings, dataset_name, to)
        jobs.append(_checked(settings, source))
        if dataset_name == "synthetic":
            continue
        variant = stripped_path(source.source)
        variant = test_path(variant) if settings.test_mode else variant
        if variant.is_file():
            why = f"{dataset_name} without reasoning"
            jobs.append(_checked(settings, Job(str(variant), dataset_name, source.to + NO_REASONING, why)))
        else:
            notes.append(
                f"{variant} is not there, so no {NO_REASONING} variant is published (kernelmill strip makes it)"
            )
    return jobs, notes


def _named(settings: PublishSettings, dataset_name: str, to: str | None) -> Job:
    """The job for a named dataset."""
    path, target = (
        getattr(settings, f"{dataset_name}_path"),
        to or _target(getattr(settings, f"{dataset_name}_to")),
    )
    why = f"{dataset_name}, by {settings.origin(f'{dataset_name}_path')}"
    if settings.test_mode and (other := test_mode_source(path, named=False)):
        path, why = other, f"{why}; in test mode, what its test run wrote"
    if to is not None and to.startswith("folder:"):
        target = f"{to.rstrip('/')}/{dataset_name}"
    if (dataset_name != "raw" or path.endswith(DATA)) and not Path(path).expanduser().exists():
        raise SourceError(f"{path} is not there: make it with kernelmill {MAKERS[dataset_name]}")
    return Job(path, dataset_name, target, why)


def _name_of(settings: PublishSettings, to: str) -> str | None:
    """The named dataset whose target this is, if any."""
    base = to.removesuffix(NO_REASONING)
    return next(
        (dataset_name for dataset_name in (*ALL, "raw") if base == getattr(settings, f"{dataset_name}_to")),
        None,
    )


def _target(to: str) -> str:
    if to.startswith("folder:"):
        if not to.removeprefix("folder:").strip("/"):
            raise ConfigError(f"--to {to}: name a folder, as in folder:outputs/dataset")
    elif not _REPO.fullmatch(to):
        raise ConfigError(f"--to {to}: expected org/name for the Hub, or folder:PATH")
    return to


def _checked(settings: PublishSettings, job: Job) -> Job:
    """Reject jobs that must not be published. In test mode, return the job with a target for tests."""
    if settings.test_mode:
        if job.folder is None:
            raise ConfigError(
                "test mode never uploads: leave TEST_MODE out, or look at the first rows in a folder with --to folder:PATH"
            )
        top = settings.to or ""
        return job._replace(to=job.to.replace(top.rstrip("/"), f"{top.rstrip('/')}.test", 1))
    source = Path(job.source).expanduser().resolve()
    inside = job.folder is not None and job.folder.expanduser().resolve().is_relative_to(source)
    if inside or job.source.removeprefix("hub:").partition("@")[0] == job.to:
        raise ConfigError(f"{job.source} would be published over itself, or into itself: name another --to")
    return job
