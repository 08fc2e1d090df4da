"""Find models in problem files, and in folders of them with KernelBench's layout."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from kernelmill.base.problem_layout import LEVEL, level_folders, maker_of, natural
from kernelmill.errors import SourceError

_NOT_IN_NAMES = re.compile(r"[^\w.+-]")
UNKNOWN = "models"
"""The folder for models without a known level."""


class ModelFile(NamedTuple):
    path: Path
    level: int | None
    code: str | None = None
    """The source text of a model without a file (`hf`, `importable`); `path` is then only a name."""
    assumptions: tuple[str, ...] = ()
    """Choices made because the user specified nothing."""

    @property
    def name(self) -> str:
        return _NOT_IN_NAMES.sub(
            "_", self.path.stem if self.code is None else str(self.path).rpartition(":")[2]
        )

    @property
    def output_path(self) -> str:
        """Its folder in the output."""
        return f"{f'level{self.level}' if self.level is not None else UNKNOWN}/{self.name}"


def model_files(sources: Iterable[Path]) -> list[ModelFile]:
    """Files in the order given; those of a folder sorted by level and number.

    Raises `SourceError` if a source has none.
    """
    found: dict[Path, ModelFile] = {}
    for source in sources:
        files = list(_files(source))
        if not files:
            raise SourceError(
                f"{source}: no .py file in it, nor in a folder level1, level2 … of it{maker_of(source)}"
            )
        for file in files:
            found.setdefault(file.resolve(), ModelFile(file, _level(file)))
    return list(found.values())


def _files(source: Path) -> Iterator[Path]:
    if source.is_file():
        if source.suffix != ".py":
            raise SourceError(f"{source}: expected a .py file with a class Model")
        yield source
    elif source.is_dir():
        for folder in level_folders(source) or [source]:
            yield from _in(folder)
    else:
        raise SourceError(f"{source}: no such file or folder{maker_of(source)}")


def _in(folder: Path) -> list[Path]:
    return sorted((file for file in folder.glob("*.py") if file.name != "__init__.py"), key=natural)


def _level(file: Path) -> int | None:
    found = LEVEL.fullmatch(file.resolve().parent.name)
    return int(found[1]) if found else None
