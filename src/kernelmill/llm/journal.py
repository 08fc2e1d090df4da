"""The journal: every answer that was paid for, durable before it is used.

One SQLite file (WAL, synchronous=FULL) with one writer process and one writer thread. `append` returns when the
answer is on the disk; many answers that arrive together share one commit, so durability costs little. A process
that is killed at any moment, or a machine that loses power, keeps every answer whose `append` returned.

    calls   one line an answer of a model: key, attempt, request, response, tokens, cost
    facts   what was found out by running a module in isolation (not paid for, but slow): key, value

The key of a call is the hash of the whole request, so the same question is never asked twice. Answers are kept as
the server sent them; whether one can be used is decided anew by whoever reads it. Headers, and with them keys, are
never written. Does not expire or delete anything: remove the file to forget.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self
from urllib.parse import quote

from kernelmill.errors import OutputError, SourceError
from kernelmill.store.lock import take_lock

_SCHEMA = """
CREATE TABLE IF NOT EXISTS calls (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    at REAL NOT NULL,
    stage TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    model TEXT NOT NULL,
    seconds REAL NOT NULL,
    tokens_in INTEGER,
    tokens_out INTEGER,
    tokens_reasoning INTEGER,
    cost REAL,
    request BLOB NOT NULL,      -- JSON, zlib
    response TEXT NOT NULL,     -- as the server sent it
    UNIQUE (key, attempt)
);
CREATE TABLE IF NOT EXISTS facts (
    key TEXT PRIMARY KEY,
    at REAL NOT NULL,
    value TEXT NOT NULL
);
"""
_VERSION = 1


class Call(NamedTuple):
    """One answer of a model. `cost` in US dollars, None where the price is not known; tokens likewise."""

    key: str
    attempt: int
    at: float
    stage: str
    endpoint: str
    model: str
    seconds: float
    tokens_in: int | None
    tokens_out: int | None
    tokens_reasoning: int | None
    cost: float | None
    request: bytes
    response: str


class Answer(NamedTuple):
    """What a reader of the journal needs of a call."""

    response: str
    cost: float | None


class Totals(NamedTuple):
    stage: str
    model: str
    calls: int
    questions: int
    tokens_in: int | None
    tokens_out: int | None
    tokens_reasoning: int | None
    cost: float | None
    unknown_cost: int


_COLUMNS = ", ".join(Call._fields)
_INSERT = f"INSERT INTO calls ({_COLUMNS}) VALUES ({', '.join('?' * (len(Call._fields) - 2))}, deflate(?), ?)"
_Write = tuple[str, tuple[object, ...], asyncio.Future[None]]


class JournalReader:
    """Looks into a journal, also while a run is writing it. Changes nothing.

    A path of None is an empty journal: what a dry run sees before the first real one.
    """

    def __init__(self, path: Path | None) -> None:
        if path is None:
            self._reader = sqlite3.connect(":memory:")
            self._reader.executescript(_SCHEMA)
            return
        if not path.is_file():
            raise SourceError(f"{path}: no such journal")
        self._reader = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=60)
        try:
            self._reader.execute("SELECT 1 FROM calls LIMIT 1")
        except sqlite3.DatabaseError as error:
            self._reader.close()
            raise SourceError(f"{path} is not a journal ({error})") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def answers(self, key: str) -> list[Answer]:
        """All answers to a question, in the order of asking."""
        found = self._reader.execute(
            "SELECT response, cost FROM calls WHERE key = ? ORDER BY attempt", (key,)
        )
        return [Answer(*row) for row in found]

    def fact(self, key: str) -> str | None:
        found = self._reader.execute("SELECT value FROM facts WHERE key = ?", (key,)).fetchone()
        return found[0] if found else None

    def calls(self, last: int | None = None) -> Iterator[Call]:
        """All calls, oldest first, or the `last` few."""
        newest = "SELECT * FROM calls ORDER BY id DESC LIMIT ?"
        for row in self._reader.execute(
            f"SELECT {_COLUMNS} FROM ({newest}) ORDER BY id", (-1 if last is None else last,)
        ):
            call = Call(*row)
            yield call._replace(request=zlib.decompress(call.request))

    def totals(self) -> list[Totals]:
        query = """
            SELECT stage, model, COUNT(*), COUNT(DISTINCT key), SUM(tokens_in), SUM(tokens_out),
                   SUM(tokens_reasoning), SUM(cost), SUM(cost IS NULL)
            FROM calls GROUP BY stage, model ORDER BY stage, model
        """
        return [Totals(*row) for row in self._reader.execute(query)]


class Journal(JournalReader):
    """The journal of a running stage: one process at a time. Use as a context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._queue: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        self._lock = take_lock(
            self.path,
            f"the journal {self.path} is in use by another kernelmill process: wait for it, or give --journal",
        )
        try:
            self._reader = _connect(self.path)
        except BaseException:
            self._lock.close()
            raise
        self._thread = threading.Thread(target=self._write, name="journal", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._queue.put(None)
        self._thread.join()
        self._reader.close()
        self._lock.close()

    async def append(self, call: Call) -> None:
        """Write an answer; returns when it is on the disk."""
        await self._submit(_INSERT, call)

    async def add_fact(self, key: str, value: str) -> None:
        await self._submit(
            "INSERT OR REPLACE INTO facts (key, at, value) VALUES (?, ?, ?)", (key, time.time(), value)
        )

    async def _submit(self, statement: str, values: tuple[object, ...]) -> None:
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.put((statement, values, written))
        # Shielded: a cancelled caller must not cancel what the writer thread is about to resolve.
        await asyncio.shield(written)

    def _write(self) -> None:
        """The writer thread: whatever has queued up goes into one commit."""
        connection = _connect(self.path)
        # In SQL, so that the work is done in this thread and not in the event loop's.
        connection.create_function(
            "deflate", 1, lambda request: zlib.compress(request, 1), deterministic=True
        )
        last = False
        while not last:
            batch: list[_Write] = []
            item = self._queue.get()
            while item is not None:
                batch.append(item)
                try:
                    item = self._queue.get_nowait()
                except queue.Empty:
                    break
            last = item is None
            failure = _commit(connection, batch)
            for _, _, written in batch:
                # The loop is gone when a run was stopped hard; what was queued is on the disk all the same.
                with contextlib.suppress(RuntimeError):
                    written.get_loop().call_soon_threadsafe(_resolve, written, failure)
        connection.close()


def _commit(connection: sqlite3.Connection, batch: list[_Write]) -> OutputError | None:
    try:
        connection.execute("BEGIN IMMEDIATE")
        for statement, values, _ in batch:
            connection.execute(statement, values)
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        return OutputError(f"the journal could not be written ({error}): is the disk full?")
    return None


def _resolve(written: asyncio.Future[None], failure: OutputError | None) -> None:
    if not written.done():
        if failure is None:
            written.set_result(None)
        else:
            written.set_exception(failure)


def _connect(path: Path) -> sqlite3.Connection:
    # Autocommit: transactions are begun by hand, in the writer thread only.
    connection = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, _VERSION):
            raise SourceError(
                f"{path} was written by another version of kernelmill (format {version}, not {_VERSION})"
            )
        connection.executescript(_SCHEMA)
        connection.execute(f"PRAGMA user_version={_VERSION}")
    except sqlite3.DatabaseError as error:
        connection.close()
        raise SourceError(f"{path} is not a journal ({error})") from None
    return connection
