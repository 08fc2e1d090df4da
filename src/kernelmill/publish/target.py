"""The common interface of publishing targets: a folder or the Hub."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

import msgspec
import yaml  # type: ignore[import-untyped]

from kernelmill.errors import OutputError
from kernelmill.publish.dataset import Built
from kernelmill.publish.schema import describe
from kernelmill.store import Source
from kernelmill.store.hub import find_splits
from kernelmill.store.parquet import first_line
from kernelmill.store.source import DataFile


class Present:
    """The dataset that is at a target now."""

    def __init__(
        self,
        files: dict[str, str],
        manifest: dict[str, Any] | None,
        edited: list[str],
        splits: Callable[[], dict[str, list[DataFile]]],
    ) -> None:
        self.files = files
        """Files and their hashes."""
        self.manifest = manifest
        """`kernelmill.json`, if kernelmill made the dataset."""
        self.edited = edited
        """Files that no longer match the manifest."""
        self.splits = splits
        """Returns the data files by split, as local files. A Hub target downloads them when this is
        called."""

    def count_rows(self) -> int:
        if self.manifest is not None:
            return sum(self.manifest["rows"].values())
        return sum(_rows_in(file) for files in self.splits().values() for file in files)

    def columns(self) -> dict[str, str] | None:
        """The columns and their types; None where they are unknown."""
        if self.manifest is not None:
            return dict(self.manifest["columns"])
        files = [file for split in self.splits().values() for file in split]
        if not files or not files[0].path.name.endswith(".parquet"):
            return None
        import pyarrow.parquet as pq

        return dict(describe(pq.read_schema(files[0].path)))


def _rows_in(file: DataFile) -> int:
    if file.path.name.endswith(".parquet"):
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return int(pq.read_metadata(file.path).num_rows)
        except pa.ArrowException as error:
            raise OutputError(
                f"{file.label} cannot be read ({first_line(error)}): if it may be replaced, say --yes"
            ) from None
    return sum(1 for _ in Source("", [file], {}).rows())


class Target(Protocol):
    """A place for one dataset.

    Use as a context manager: a folder is locked against other processes meanwhile.
    """

    label: str
    forgets: bool
    """Whether replaced data is lost. The Hub keeps its history."""

    def __enter__(self) -> Target: ...

    def __exit__(self, *exc: object) -> None: ...

    def look(self) -> Present | None:
        """Inspect what is there. Raises where this target cannot be written, before any work is done."""
        ...

    def staging(self) -> Path:
        """An empty folder to build in. It is removed when the target's context exits."""
        ...

    def to_send(self, built: Built) -> int:
        """Number of bytes to send or write."""
        ...

    def put(self, built: Built) -> str | None:
        """Publish atomically. Returns where the dataset is now, or None where nothing had to change."""
        ...


def read_manifest(where: str, text: bytes) -> dict[str, Any]:
    try:
        manifest = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise OutputError(f"{where} is damaged ({error}): move the dataset away and publish again") from None
    tables = all(isinstance(manifest.get(name), dict) for name in ("rows", "columns", "files"))
    if manifest.get("made_by") != "kernelmill" or not tables:
        raise OutputError(f"{where} was not made by kernelmill: publish to another place")
    return manifest


def data_files(names: Iterable[str], card: bytes | None) -> dict[str, list[str]]:
    """The data files of each split, from the card if it lists them.

    A card that cannot be parsed is ignored.
    """
    front = card.decode("utf-8", "replace").split("---") if card else []
    try:
        metadata = yaml.safe_load(front[1]) if len(front) > 2 and not front[0].strip() else {}
    except yaml.YAMLError:
        metadata = {}
    return find_splits(list(names), metadata if isinstance(metadata, dict) else {})
