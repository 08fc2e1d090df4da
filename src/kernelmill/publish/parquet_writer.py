"""Write Parquet files with an explicit schema, bounded memory, and the same bytes for the same rows.

Batches are collected into row groups and written in a background thread, because compression takes as long as
everything else together. A file that reaches `SHARD_BYTES` is closed and the next one is started. The order
of the rows is kept. The bytes do not depend on the clock or the machine, but on pyarrow's version, which the
manifest records.
"""

from __future__ import annotations

import hashlib
import io
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

GROUP_ROWS, GROUP_BYTES = 50_000, 16 << 20
SHARD_BYTES = 500 << 20


class WrittenFile(NamedTuple):
    """One written file of a dataset."""

    name: str
    """Path inside the dataset: `data/train-00000-of-00001.parquet`."""
    path: Path
    rows: int
    size: int
    sha256: str


class _HashedFile(io.RawIOBase):
    """A file that is hashed while it is written, so that it does not have to be read again."""

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
    """Writes one split into `folder`.

    `finish` gives the files their final names, which contain the number of files.
    """

    def __init__(self, folder: Path, split: str, schema: Any, shard_bytes: int = SHARD_BYTES) -> None:
        self._folder, self._split, self._schema = folder, split, schema
        self._shard_bytes = shard_bytes
        self._thread = ThreadPoolExecutor(1, f"write-{split}")
        self._writing: Future[None] | None = None
        self._group: list[Any] = []
        self._group_rows = self._group_bytes = 0
        self._file: Any = None
        self._shards: list[_HashedFile] = []

    def __enter__(self) -> SplitWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._close()
        for shard in self._shards:
            shard.path.unlink(missing_ok=True)  # finished shards have been renamed

    def add(self, batch: Any, size: int) -> None:
        """Add a batch of rows. `size` is their size in the source, in bytes."""
        self._group.append(batch)
        self._group_rows += len(batch)
        self._group_bytes += size
        if self._group_rows >= GROUP_ROWS or self._group_bytes >= GROUP_BYTES:
            self._write_group()

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
                # Texts are mostly distinct, and zstd finds repetitions by itself.
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

    def finish(self) -> list[WrittenFile]:
        """Write the remaining rows and rename the files.

        No rows give no file: `datasets` cannot load an empty split.
        """
        self._write_group()
        self._wait()
        self._close()
        written = []
        (self._folder / "data").mkdir(exist_ok=True)
        for number, shard in enumerate(self._shards):
            name = f"data/{self._split}-{number:05}-of-{len(self._shards):05}.parquet"
            path = shard.path.rename(self._folder / name)
            written.append(WrittenFile(name, path, shard.rows, shard.size, shard.sha.hexdigest()))
        return written
