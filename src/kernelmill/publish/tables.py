"""Rows as Parquet files: explicit schema, bounded memory, the same bytes for the same rows.

Rows are turned into Arrow in small batches, gathered into row groups and written in a thread of their own, for compressing takes
as long as all the rest. A file that has grown to `SHARD_BYTES` is closed and the next one begun. The order of the rows stays.
Nothing that is written depends on the clock or the machine; it does depend on pyarrow's version, which the manifest names.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from kernelmill.errors import BadRow
from kernelmill.rows import Row

BATCH_ROWS, BATCH_BYTES = 2_000, 1 << 20
GROUP_ROWS, GROUP_BYTES = 50_000, 16 << 20
SHARD_BYTES = 500 << 20


class Written(NamedTuple):
    """One file of a split."""

    name: str
    """Inside the dataset: `data/train-00000-of-00001.parquet`."""
    path: Path
    rows: int
    size: int
    sha256: str


class _HashedFile(io.RawIOBase):
    """A file that is hashed while it is written, so that it need not be read again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = self.size = 0
        self.sha = hashlib.sha256()
        self._file = path.open("wb", buffering=0)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self.sha.update(view)
        self.size += len(view)
        while view:
            view = view[self._file.write(view) :]
        return len(data)

    def tell(self) -> int:
        return self.size

    def close(self) -> None:
        self._file.close()
        super().close()


class SplitWriter:
    """Writes one split into `folder`. `finish` gives the files their names, which say how many there are."""

    def __init__(self, folder: Path, split: str, schema: Any, shard_bytes: int = SHARD_BYTES) -> None:
        self._folder, self._split, self._schema = folder, split, schema
        self._names = schema.names
        self._shard_bytes = shard_bytes
        self._thread = ThreadPoolExecutor(1, f"write-{split}")
        self._writing: Future[None] | None = None
        self._rows: list[dict[str, Any]] = []
        self._places: list[str] = []
        self._row_bytes = 0
        self._group: list[Any] = []
        self._group_rows = self._group_bytes = 0
        self._file: Any = None
        self._shards: list[_HashedFile] = []
        self.rows = 0

    def __enter__(self) -> SplitWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._close()
        for shard in self._shards:
            shard.path.unlink(missing_ok=True)  # those that are finished have another name by now

    def add(self, row: Row, values: dict[str, Any]) -> None:
        self._rows.append(values)
        self._places.append(row.where)
        self._row_bytes += len(row.raw)
        self.rows += 1
        if len(self._rows) >= BATCH_ROWS or self._row_bytes >= BATCH_BYTES:
            self._convert()

    def _convert(self) -> None:
        """Rows to Arrow, and a full row group to the writer's thread."""
        import pyarrow as pa

        if self._rows:
            columns = zip(*map(self._columns_of, self._rows), strict=True)
            arrays = [self._array(*both) for both in zip(self._schema, columns, strict=True)]
            self._group.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
            self._group_rows += len(self._rows)
            self._group_bytes += self._row_bytes
            self._rows, self._places, self._row_bytes = [], [], 0
        if self._group_rows >= GROUP_ROWS or self._group_bytes >= GROUP_BYTES:
            self._write_group()

    def _columns_of(self, row: dict[str, Any]) -> list[Any]:
        return [*map(row.get, self._names)]

    def _array(self, field: Any, values: Sequence[Any]) -> Any:
        import pyarrow as pa

        try:
            return pa.array(values, field.type)
        except (pa.ArrowInvalid, OverflowError):
            for where, value in zip(self._places, values, strict=True):
                try:
                    pa.array([value], field.type)
                except (pa.ArrowInvalid, OverflowError):
                    raise BadRow(
                        where,
                        f"a whole number that a float cannot hold exactly: publish the column as JSON text with --json-columns {field.name}",
                        f"$.{field.name}",
                    ) from None
            raise

    def _write_group(self) -> None:
        self._wait()
        if self._group:
            self._writing = self._thread.submit(self._write, self._group, self._group_rows)
        self._group, self._group_rows, self._group_bytes = [], 0, 0

    def _wait(self) -> None:
        if self._writing is not None:
            self._writing.result()
            self._writing = None

    def _write(self, batches: list[Any], rows: int) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if self._file is None:
            self._shards.append(_HashedFile(self._folder / f"{self._split}-{len(self._shards):05}.part"))
            self._file = pq.ParquetWriter(
                self._shards[-1], self._schema, version="2.6", compression="zstd", compression_level=1,
                # Texts are mostly different, and what repeats zstd finds by itself.
                use_dictionary=False, write_statistics=True, store_schema=True,
            )  # fmt: skip
        self._file.write_table(pa.Table.from_batches(batches, self._schema), row_group_size=rows)
        self._shards[-1].rows += rows
        if self._shards[-1].size >= self._shard_bytes:
            self._close()

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._shards[-1].close()
            self._file = None

    def finish(self) -> list[Written]:
        """Write what is left. No rows make no file: `datasets` cannot load an empty split."""
        self._convert()
        self._write_group()
        self._wait()
        self._close()
        written = []
        (self._folder / "data").mkdir(exist_ok=True)
        for number, shard in enumerate(self._shards):
            name = f"data/{self._split}-{number:05}-of-{len(self._shards):05}.parquet"
            path = shard.path.rename(self._folder / name)
            written.append(Written(name, path, shard.rows, shard.size, shard.sha.hexdigest()))
        return written


def file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
