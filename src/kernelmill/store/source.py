"""One reader for every kind of source, streaming.

A source is named on the command line as one of

    rows.jsonl  rows.jsonl.gz  rows.jsonl.zst  rows.parquet     a file
    some/folder                                                 its data files, or its problem files (*.py)
    org/name  org/name@revision                                 a dataset on the Hugging Face Hub
    hub:org/name@revision                                       the same, where a folder has that name too
    bundled:samples/evals.jsonl  bundled:problems               what ships with kernelmill

`Source.rows()` may be called again and again, and always gives the same rows: the files of a Hub dataset are
pinned to one commit, and a local file that changed between two passes is an error. Memory does not grow with
the number of rows. Does not read JSON arrays, CSV or Arrow IPC.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

from kernelmill.errors import SourceError
from kernelmill.resources import bundled
from kernelmill.rows import Row

JSONL = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".ndjson")
DATA = (*JSONL, ".parquet")
_HUB = re.compile(r"^(?P<hub>hub:)?(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[^@\s]+))?$")
_SKIPPED_FOLDERS = {"__pycache__"}


class DataFile(NamedTuple):
    path: Path
    label: str
    """How the file is called in messages: its path, or `org/name@revision:file`."""


class Source:
    """Rows of one or more files, read in order as often as needed."""

    def __init__(self, name: str, files: list[DataFile], origin: dict[str, Any]) -> None:
        self.name = name
        self.files = files
        self.origin = origin
        """Where the rows come from, for the manifest."""
        self._seen: dict[Path, tuple[int, int]] = {}

    def rows(self, limit: int | None = None) -> Iterator[Row]:
        """All rows, or the first `limit`. A line that is not JSON is found by whoever decodes the row."""
        index = 0
        for file in self.files:
            self._check_unchanged(file)
            for where, raw in _read(file):
                if limit is not None and index >= limit:
                    return
                yield Row(index, where, raw)
                index += 1

    def _check_unchanged(self, file: DataFile) -> None:
        try:
            stat = file.path.stat()
        except OSError as error:
            raise SourceError(f"{file.label}: cannot be read ({error.strerror})") from error
        now = (stat.st_size, stat.st_mtime_ns)
        if self._seen.setdefault(file.path, now) != now:
            raise SourceError(f"{file.label} changed while it was being used: run the same command again")


def open_source(spec: str, split: str | None = None, token: str | None = None) -> Source:
    """Find what `spec` names. Opens no data file yet, so errors inside the rows come later.

    `split` chooses one split of a Hub dataset; without it all splits are read, train first.
    """
    if spec.startswith("bundled:"):
        _no_split(spec, split)
        top = bundled("data")
        path = top / spec.removeprefix("bundled:")
        if not path.exists():
            raise SourceError(
                f"{spec}: not among what ships (there are: bundled:samples/evals.jsonl, bundled:problems)"
            )
        found = _folder(path) if path.is_dir() else [_data_file(path)]
        files = [DataFile(file.path, f"bundled:{file.path.relative_to(top)}") for file in found]
        return Source(spec, files, {"kind": "bundled", "path": spec})
    path = Path(spec).expanduser()
    hub = _HUB.match(spec)
    if hub is None or not hub["hub"]:
        if path.is_file():
            _no_split(spec, split)
            return Source(spec, [_data_file(path)], {"kind": "file", "path": spec})
        if path.is_dir():
            _no_split(spec, split)
            return Source(spec, _folder(path), {"kind": "folder", "path": spec})
    if hub is None or spec.endswith((*DATA, ".py", ".json", ".csv")):
        raise SourceError(f"{spec}: no such file or folder")
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


def natural(path: Path) -> list[tuple[int, int | str]]:
    """Sort key that puts `2_x` before `10_x`."""
    return [(0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"(\d+)", str(path)) if part]


def _folder(folder: Path) -> list[DataFile]:
    found = [
        path
        for path in folder.rglob("*")
        if path.is_file()
        and not any(p in _SKIPPED_FOLDERS or p.startswith(".") for p in path.parts[len(folder.parts) :])
    ]
    data = [path for path in found if path.name.endswith(DATA) and not path.name.endswith(".rejected.jsonl")]
    problems = [path for path in found if path.suffix == ".py"]
    if data and problems:
        raise SourceError(f"{folder} holds both data files and problem files (*.py): name one of them")
    if not data and not problems:
        raise SourceError(f"{folder} holds no data file ({', '.join(DATA)}) and no problem file (*.py)")
    return [DataFile(path, str(path)) for path in sorted(data or problems, key=natural)]


def _read(file: DataFile) -> Iterator[tuple[str, bytes]]:
    name = file.path.name
    reader: Callable[[DataFile], Iterator[tuple[str, bytes]]]
    if name.endswith(JSONL):
        reader = _read_jsonl
    elif name.endswith(".parquet"):
        reader = _read_parquet
    else:
        reader = _read_problem
    try:
        yield from reader(file)
    except OSError as error:
        raise SourceError(f"{file.label}: cannot be read ({error.strerror or error})") from error


def _open(path: Path) -> IO[bytes]:
    if path.suffix == ".gz":
        import gzip

        return gzip.open(path, "rb")  # type: ignore[return-value]
    if path.suffix == ".zst":
        import io

        import pyarrow as pa

        # pyarrow reads zstd; Python 3.11 to 3.13 do not by themselves.
        return io.BufferedReader(pa.input_stream(str(path), compression="zstd"), 1 << 20)
    return path.open("rb", buffering=1 << 20)


def _read_jsonl(file: DataFile) -> Iterator[tuple[str, bytes]]:
    with _open(file.path) as lines:
        try:
            for number, line in enumerate(lines, 1):
                if number == 1:
                    line = line.removeprefix(b"\xef\xbb\xbf")
                if raw := line.strip():
                    yield f"{file.label}:{number}", raw
        except EOFError as error:
            raise SourceError(f"{file.label}: the compressed file is cut off ({error})") from error


def _read_parquet(file: DataFile) -> Iterator[tuple[str, bytes]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    encode = msgspec.json.Encoder().encode
    try:
        # Small batches and no pre-buffering: a row group may be hundreds of megabytes.
        with pq.ParquetFile(file.path, pre_buffer=False, buffer_size=1 << 20) as table:
            number = 0
            for batch in table.iter_batches(batch_size=64, use_threads=False):
                for values in batch.to_pylist():
                    yield f"{file.label}: row {number}", encode(values)
                    number += 1
    except pa.ArrowInvalid as error:
        raise SourceError(f"{file.label}: not a Parquet file ({_first_line(error)})") from error


_PROBLEM_NAME = re.compile(r"^(?P<id>\d+)_(?P<name>.+)$")
_LEVEL_FOLDER = re.compile(r"^level_?(?P<level>\d+)$")


def _read_problem(file: DataFile) -> Iterator[tuple[str, bytes]]:
    """A problem file as one row: the columns of KernelBench's Hub dataset, and the code as `python_code`."""
    try:
        code = file.path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SourceError(f"{file.label}: not UTF-8 text ({error.reason} at byte {error.start})") from error
    named = _PROBLEM_NAME.match(file.path.stem)
    level = _LEVEL_FOLDER.match(file.path.parent.name)
    row = {
        "python_code": code,
        "name": file.path.stem,
        "level": int(level["level"]) if level else None,
        "problem_id": int(named["id"]) if named else None,
    }
    yield file.label, msgspec.json.encode(row)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
