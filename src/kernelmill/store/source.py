"""Stream the rows of any kind of source.

A source is named on the command line as one of

    rows.jsonl  rows.jsonl.gz  rows.jsonl.zst  rows.parquet     a file
    some/folder                                                 its data files, or its problem files (*.py)
    org/name  org/name@revision                                 a dataset on the Hugging Face Hub
    hub:org/name@revision                                       the same, where a folder has that name too
    bundled:samples/evals.jsonl  bundled:problems               what ships with kernelmill

`Source.rows()` can be called repeatedly and always gives the same rows: the files of a Hub dataset are pinned
to one commit, and a local file that changed between two passes is an error. Memory does not grow with the
number of rows. `parquet` describes how Parquet values without a JSON type are written, and which are faults
of their row. Does not read JSON arrays, CSV or Arrow IPC.
"""

from __future__ import annotations

import os
import re
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

from kernelmill.base.problem_layout import LEVEL, maker_of, natural
from kernelmill.base.resources import bundled
from kernelmill.base.rows import Row
from kernelmill.errors import SourceError
from kernelmill.store.parquet import first_line, read_parquet

JSONL = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".ndjson")
DATA = (*JSONL, ".parquet")
_HUB = re.compile(r"^(?P<hub>hub:)?(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[^@\s]+))?$")
_SKIPPED_FOLDERS = {"__pycache__"}


class DataFile(NamedTuple):
    path: Path
    label: str
    """The file's name in messages: its path, or `org/name@revision:file`."""
    split: str | None = None
    """Split of a Hub dataset."""


class Source:
    """The rows of one or more files, in order. Can be read repeatedly."""

    def __init__(self, name: str, files: list[DataFile], origin: dict[str, Any]) -> None:
        self.name = name
        self.files = files
        self.origin = origin
        """Where the rows come from, for the manifest."""
        self._seen: dict[Path, tuple[int, int]] = {}

    def rows(self) -> Iterator[Row]:
        """Yield all rows. Does not validate JSON: decoding a row does."""
        index = 0
        for file in self.files:
            self._check_unchanged(file)
            for where, raw, fault in _read(file):
                yield Row(index, where, raw, fault)
                index += 1

    def _check_unchanged(self, file: DataFile) -> None:
        try:
            found = file.path.stat()
        except OSError as error:
            raise SourceError(f"{file.label}: cannot be read ({error.strerror})") from error
        if not stat.S_ISREG(found.st_mode):
            raise SourceError(f"{file.label}: not a plain file")
        now = (found.st_size, found.st_mtime_ns)
        if self._seen.setdefault(file.path, now) != now:
            raise SourceError(f"{file.label} changed while it was being used: run the same command again")


def open_source(spec: str, split: str | None = None, token: str | None = None) -> Source:
    """Find the source that `spec` names. Opens no data file yet, so errors inside the rows come later.

    `split` selects one split of a Hub dataset. Without it all splits are read, train first.
    """
    if not spec or not _is_text(spec):
        raise SourceError(
            f"{_shown(spec)}: not the name of a source (is it UTF-8?)" if spec else "the source has no name"
        )
    if spec.startswith("bundled:"):
        _no_split(spec, split)
        top = bundled("data").resolve()
        path = (top / spec.removeprefix("bundled:")).resolve()
        if not (path.is_relative_to(top) and path.exists()):
            raise SourceError(
                f"{spec}: not among what ships (there are: bundled:samples/evals.jsonl, bundled:problems)"
            )
        found = _folder(path) if path.is_dir() else [_data_file(path)]
        files = [DataFile(file.path, f"bundled:{file.path.relative_to(top)}") for file in found]
        return Source(spec, files, {"kind": "bundled", "path": spec})
    hub = _HUB.match(spec)
    if hub is None or not hub["hub"]:
        try:
            path = Path(spec).expanduser()
            kind = stat.S_IFMT(path.stat().st_mode)
        except (FileNotFoundError, NotADirectoryError):
            kind = 0
        except OSError as error:
            raise SourceError(f"{spec}: cannot be read ({error.strerror})") from error
        except (RuntimeError, ValueError) as error:  # an unknown ~user, or a null byte
            raise SourceError(f"{spec}: not a path ({error})") from error
        if kind == stat.S_IFREG:
            _no_split(spec, split)
            return Source(spec, [_data_file(path)], {"kind": "file", "path": spec})
        if kind == stat.S_IFDIR:
            _no_split(spec, split)
            return Source(spec, _folder(path), {"kind": "folder", "path": spec})
        if kind:
            raise SourceError(f"{spec}: neither a file nor a folder (rows are read more than once)")
    if hub is None or spec.endswith((*DATA, ".py", ".json", ".csv")):
        raise SourceError(f"{spec}: no such file or folder{maker_of(spec)}")
    from kernelmill.store.hub import hub_files

    files, origin = hub_files(hub["repo"], hub["revision"], split, token, asked_as=spec)
    return Source(spec, files, origin)


def _no_split(spec: str, split: str | None) -> None:
    if split is not None:
        raise SourceError(f"{spec} is a local source and has no splits: leave --split out")


def _data_file(path: Path) -> DataFile:
    if not path.name.endswith((*DATA, ".py")):
        raise SourceError(f"{path}: cannot read this kind of file (known: {', '.join((*DATA, '.py'))})")
    return DataFile(path, str(path))


def _is_text(name: str) -> bool:
    """Whether a name is valid UTF-8. File names need not be, but manifests and messages must be."""
    return _shown(name) == name


def _shown(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode()


def _folder(folder: Path) -> list[DataFile]:
    found = []
    try:
        # Not Path.rglob, which silently skips folders that it may not list: rows would be missing.
        for top, folders, names in os.walk(folder, onerror=_raise):
            folders[:] = [name for name in folders if name not in _SKIPPED_FOLDERS and name[0] != "."]
            found += [os.path.join(top, name) for name in names if name[0] != "."]
    except OSError as error:
        where = _shown(str(error.filename or folder))
        raise SourceError(f"{folder}: cannot be listed ({where}: {error.strerror})") from error
    data = [name for name in found if name.endswith(DATA) and not name.endswith(".rejected.jsonl")]
    problems = [name for name in found if name.endswith(".py")]
    if data and problems:
        raise SourceError(f"{folder} holds both data files and problem files (*.py): name one of them")
    if not data and not problems:
        raise SourceError(
            f"{folder} holds no data file ({', '.join(DATA)}) and no problem file (*.py){maker_of(folder)}"
        )
    for name in data or problems:
        if not _is_text(name):
            raise SourceError(f"{_shown(name)}: the file's name is not UTF-8: rename it")
    return [DataFile(path, str(path)) for path in sorted(map(Path, data or problems), key=natural)]


def _raise(error: OSError) -> None:
    raise error


_Read = Iterator[tuple[str, bytes, str | None]]


def _read(file: DataFile) -> _Read:
    """Yield each row's location, its bytes, and its fault if any."""
    name = file.path.name
    if name.endswith(JSONL):
        rows = _read_jsonl(file)
    elif name.endswith(".parquet"):
        rows = read_parquet(file.path, file.label)
    else:
        rows = _read_problem(file)
    try:
        yield from rows
    except OSError as error:
        raise SourceError(f"{file.label}: cannot be read ({error.strerror or first_line(error)})") from error


def _open(path: Path) -> IO[bytes]:
    if path.suffix == ".gz":
        import gzip

        return gzip.open(path, "rb")  # type: ignore[return-value]
    if path.suffix == ".zst":
        import io

        import pyarrow as pa

        # pyarrow reads zstd; the standard library of Python 3.11 to 3.13 does not.
        return io.BufferedReader(pa.input_stream(str(path), compression="zstd"), 1 << 20)
    return path.open("rb", buffering=1 << 20)


def _read_jsonl(file: DataFile) -> _Read:
    with _open(file.path) as lines:
        try:
            for number, line in enumerate(lines, 1):
                if number == 1:
                    line = line.removeprefix(b"\xef\xbb\xbf")
                if raw := line.strip():
                    yield f"{file.label}:{number}", raw, None
        except EOFError as error:
            raise SourceError(f"{file.label}: the compressed file is cut off ({error})") from error
        except zlib.error as error:
            raise SourceError(f"{file.label}: the compressed file is damaged ({error})") from error


_PROBLEM_NAME = re.compile(r"^(?P<id>\d+)_(?P<name>.+)$")


def _read_problem(file: DataFile) -> _Read:
    """Read a problem file as one row: KernelBench's columns on the Hub, with the code as `python_code`."""
    try:
        code = file.path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SourceError(f"{file.label}: not UTF-8 text ({error.reason} at byte {error.start})") from error
    named = _PROBLEM_NAME.match(file.path.stem)
    level = LEVEL.fullmatch(file.path.parent.name)
    row = {
        "python_code": code,
        "name": file.path.stem,
        "level": int(level[1]) if level else None,
        "problem_id": int(named["id"]) if named else None,
    }
    yield file.label, msgspec.json.encode(row), None
