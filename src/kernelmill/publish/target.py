"""Where a dataset goes: a folder or the Hub. What both have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

import msgspec
import yaml  # type: ignore[import-untyped]

from kernelmill.errors import OutputError
from kernelmill.publish.dataset import Built
from kernelmill.publish.shapes import describe
from kernelmill.store import Source
from kernelmill.store.hub import find_splits
from kernelmill.store.parquet import first_line
from kernelmill.store.source import DataFile


class Present:
    """What is there now."""

    def __init__(
        self,
        files: dict[str, str],
        manifest: dict[str, Any] | None,
        edited: list[str],
        splits: Callable[[], dict[str, list[DataFile]]],
    ) -> None:
        self.files = files
        """Each file, and a hash of it."""
        self.manifest = manifest
        """`kernelmill.json`, where the dataset is one of ours."""
        self.edited = edited
        """Files that are not any more what the manifest says."""
        self.splits = splits
        """The data files by split, as they can be read here. On the Hub they are downloaded when this is called."""

    def count_rows(self) -> int:
        if self.manifest is not None:
            return sum(self.manifest["rows"].values())
        return sum(_rows_in(file) for files in self.splits().values() for file in files)

    def columns(self) -> dict[str, str] | None:
        """The columns and their types; None where what is there does not say."""
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
    """A place for one dataset. A context manager: nobody else of this machine writes to it meanwhile."""

    label: str
    forgets: bool
    """Whether what is replaced is gone; the Hub keeps its history."""

    def __enter__(self) -> Target: ...

    def __exit__(self, *exc: object) -> None: ...

    def look(self) -> Present | None:
        """What is there. Raises where this target could not be written, before any work is done."""
        ...

    def staging(self) -> Path:
        """An empty folder to build in, which goes when the target is left."""
        ...

    def to_send(self, built: Built) -> int:
        """Bytes that would have to be sent or written."""
        ...

    def put(self, built: Built) -> str | None:
        """Publish, whole or not at all. Says where it is now; None where nothing had to change."""
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
    """The data files of each split, by the card where it says so. A card that cannot be read says nothing."""
    front = card.decode("utf-8", "replace").split("---") if card else []
    try:
        metadata = yaml.safe_load(front[1]) if len(front) > 2 and not front[0].strip() else {}
    except yaml.YAMLError:
        metadata = {}
    return find_splits(list(names), metadata if isinstance(metadata, dict) else {})
