"""Build the files of a dataset: Parquet by split, the card, and the manifest `kernelmill.json`.

The source is read once to plan the split and once to write. A column that appears late, or changes its type
late, costs a third pass, because all files share one schema. The same rows and settings give the same files,
byte for byte; the only dates in them are those of earlier stages. Does not clean up after a failure: the
caller passes a temporary folder.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from kernelmill import __version__
from kernelmill.base.no_gc import no_collector
from kernelmill.base.rows import Row
from kernelmill.base.whole_file import encoded
from kernelmill.curate.length_report import LengthReport
from kernelmill.errors import SourceError
from kernelmill.publish.batches import QuickReader, chunks, exact_batch
from kernelmill.publish.card.card import make_card
from kernelmill.publish.card.facts import CardCounts, CardFacts, ColumnFacts, Kind, SplitFacts
from kernelmill.publish.lineage import Lineage, without_folders
from kernelmill.publish.parquet_writer import SplitWriter, WrittenFile
from kernelmill.publish.schema import Columns, describe
from kernelmill.publish.splits import How, Split, plan_split, source_splits
from kernelmill.store import Source
from kernelmill.store.manifest import file_hash
from kernelmill.store.output import beside

MANIFEST = "kernelmill.json"
LOOK_AHEAD = 1_000
"""Number of rows from which the schema is guessed. If the guess turns out wrong, all rows are read again."""


class DatasetSpec(NamedTuple):
    """The dataset to build: its source and settings."""

    source: Source
    name: str
    repo: str | None
    dataset_name: str | None
    """The name of the source (`filtered`, `raw` …), if it was given by name or goes to the target of a named dataset."""
    split: How | Literal["auto"]
    share: float
    seed: int
    similarity: float
    json_columns: tuple[str, ...]
    license: str | None
    config: dict[str, Any]
    """The settings of `publish` that affect what is published."""


class Built(NamedTuple):
    """The files of a dataset in a folder."""

    folder: Path
    files: dict[str, WrittenFile]
    rows: dict[str, int]
    columns: dict[str, str]
    notes: list[str]
    """Remarks for the summary."""

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files.values())


class _RowHash:
    """The SHA-256 of rows as JSONL, computed in a thread pool, which must have a single thread."""

    def __init__(self, thread: ThreadPoolExecutor) -> None:
        self._sha = hashlib.sha256()
        self._thread = thread
        self._under_way: Future[None] | None = None

    def add(self, text: bytes) -> None:
        self._wait()
        self._under_way = self._thread.submit(self._sha.update, text)

    def _wait(self) -> None:
        if self._under_way is not None:
            self._under_way.result()

    def finish(self) -> str:
        self._wait()
        return self._sha.hexdigest()


def build(wanted: DatasetSpec, folder: Path) -> Built:
    """Build the dataset in an empty folder."""
    source, columns = wanted.source, Columns(wanted.json_columns)
    for row in islice(source.rows(), LOOK_AHEAD):
        columns.take(row)
    if not columns.news:
        raise SourceError(f"{source.name} has no rows: nothing is published")
    how = _how(wanted.split, source, columns)
    split = plan_split(source, how, wanted.share, wanted.seed, wanted.similarity)
    with no_collector():
        done = _write(source, columns, columns.schema_so_far(), split, folder)
        schema = columns.schema()
        if done is None:
            done = _write(source, columns, schema, split, folder)
            assert done is not None
    written, counts, sha256 = done
    lineage = Lineage(source)
    lineage.follow(sha256)
    notes = _notes(columns, lineage, [name for name in split.names if not written[name]], split.leakage)
    rows = {name: sum(file.rows for file in files) for name, files in written.items() if files}
    if (total := sum(rows.values())) != counts.rows:
        raise AssertionError(f"{counts.rows} rows in, but {total} written")
    facts = CardFacts(
        kind=_kind(wanted, columns, lineage),
        no_reasoning=any(stage["stage"] == "strip" for stage in lineage.stages),
        name=wanted.name,
        repo=wanted.repo,
        splits=tuple(SplitFacts(name, rows[name], (f"data/{name}-*.parquet",)) for name in rows),
        columns=tuple(ColumnFacts(name, kind, name in columns.json_text) for name, kind in describe(schema)),
        counts=counts,
        source={**without_folders(source.origin), "sha256": sha256},
        lineage=tuple(lineage.public()),
        split_policy=split.policy,
        leakage=split.leakage,
        lengths=_lengths(source),
        license=wanted.license,
        config=wanted.config,
        version=__version__,
    )
    files = {file.name: file for part in written.values() for file in part}
    for name, content in make_card(facts).items():
        files[name] = _save(folder, name, content)
    files[MANIFEST] = _save(folder, MANIFEST, _manifest(facts, files))
    return Built(folder, files, rows, dict(describe(schema)), notes)


def _how(asked: How | Literal["auto"], source: Source, columns: Columns) -> How:
    if asked != "auto":
        return asked
    if columns.format != "evals":
        return "none"
    return "source" if source_splits(source) else "groups"


class _Done(NamedTuple):
    """The result of reading and writing all rows."""

    written: dict[str, list[WrittenFile]]
    counts: CardCounts
    sha256: str


def _write(source: Source, columns: Columns, schema: Any, split: Split, folder: Path) -> _Done | None:
    """Read, hash, count and write all rows.

    Returns None where the rows do not fit the schema. Then all rows have to be written again with the columns
    known now.
    """
    fits = schema is not None
    quick, known = _quick(columns, schema), columns.news
    counts = CardCounts()
    with ExitStack() as stack:
        row_hash = _RowHash(stack.enter_context(ThreadPoolExecutor(1, "hash")))
        writers = {
            name: stack.enter_context(SplitWriter(folder, name, schema)) for name in split.names if fits
        }
        for chunk in chunks(source.rows()):
            row_hash.add(chunk.text)
            batch = quick(chunk.rows) if fits and quick is not None else None
            if batch is None:
                values = [columns.take(row) for row in chunk.rows]
                if known != columns.news:
                    known, fits = columns.news, fits and columns.schema_so_far() == schema
                    quick = _quick(columns, schema)
                batch = exact_batch(chunk.rows, values, schema) if fits else None
            if fits:
                columns.saw(batch)
                counts.add(batch)
                _share_out(chunk.rows, batch, split, writers)
        if not fits:
            return None
        return _Done({name: writer.finish() for name, writer in writers.items()}, counts, row_hash.finish())


def _quick(columns: Columns, schema: Any) -> QuickReader | None:
    if schema is None or columns.row_type is None:
        return None
    return QuickReader(columns.row_type, schema, columns.json_text)


def _share_out(rows: list[Row], batch: Any, split: Split, writers: dict[str, SplitWriter]) -> None:
    """Distribute the rows of a batch to the writers of their splits."""
    import pyarrow as pa

    sides = [split.split_of(row.index) for row in rows]
    for name in dict.fromkeys(sides):
        mine = [index for index, side in enumerate(sides) if side == name]
        part = batch if len(mine) == len(rows) else batch.take(pa.array(mine))
        writers[name].add(part, sum(len(rows[index].raw) for index in mine))


def _notes(columns: Columns, lineage: Lineage, empty: list[str], leakage: dict[str, Any]) -> list[str]:
    notes = []
    if leakage:
        notes.append(
            f"{leakage['groups']:,} groups of alike modules, {leakage['groups_on_both_sides']} on both sides; "
            f"{leakage['validation_modules_close_to_train']:,} of {leakage['validation_modules']:,} validation modules "
            f"have one in train that is at least {leakage['close']:.0%} alike"
        )
    if columns.info_is_text:
        notes.append("info is a JSON string in some rows: it is published as an object")
    if columns.missing:
        notes.append(f"no row has {', '.join(columns.missing)}: published as null")
    if lineage.note:
        notes.append(lineage.note)
    notes += [f"no row falls to {name}: the split is left out" for name in empty]
    return notes


def _kind(wanted: DatasetSpec, columns: Columns, lineage: Lineage) -> Kind:
    """The card's kind of rows: from the dataset's name, the last stage that makes its own kind, or the columns."""
    known: dict[str, Kind] = {
        "raw": "raw",
        "filtered": "filtered",
        "unique": "unique",
        "synthetic": "synthetic",
    }
    if wanted.dataset_name in known:
        return known[wanted.dataset_name]
    made: dict[str, Kind] = {"rate": "filtered", "unique": "unique", "specs": "synthetic"}
    for stage in reversed(lineage.stages):
        if stage["stage"] in made:
            return made[stage["stage"]]
    if columns.format == "evals":
        return "filtered" if "difficulty" in columns.schema().names else "raw"
    return "synthetic" if columns.format == "synthetic" else "other"


def _lengths(source: Source) -> LengthReport | None:
    """The length report beside the source, if there is one: `rows.lengths.json` for `rows.jsonl`."""
    if source.origin.get("kind") != "file":
        return None
    path = beside(source.files[0].path, ".lengths.json")
    try:
        return msgspec.json.decode(path.read_bytes(), type=LengthReport)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise SourceError(f"{path}: not a report of kernelmill lengths ({error}): make it again") from None


def _manifest(facts: CardFacts, files: dict[str, WrittenFile]) -> bytes:
    return encoded(
        {
            "made_by": "kernelmill",
            "versions": {"kernelmill": __version__, "pyarrow": version("pyarrow")},
            "rows": {split.name: split.rows for split in facts.splits},
            "columns": {column.name: column.type for column in facts.columns},
            "files": {
                name: {
                    "bytes": file.size,
                    "sha256": file.sha256,
                    **({"rows": file.rows} if file.rows else {}),
                }
                for name, file in sorted(files.items())
            },
            "split": facts.split_policy,
            "leakage": facts.leakage,
            "source": facts.source,
            "lineage": facts.lineage,
            "config": facts.config,
        }
    )


def _save(folder: Path, name: str, content: bytes) -> WrittenFile:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return WrittenFile(name, path, 0, len(content), file_hash(path))
