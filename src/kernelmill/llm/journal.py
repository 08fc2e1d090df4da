"""The journal: stores every paid answer durably before it is used.

One SQLite file (WAL, synchronous=FULL) with one writer process and one writer thread. `append` returns when
the answer is on disk. Answers that arrive together share one commit, so durability costs little. Every answer
whose `append` returned survives a kill of the process or a power loss.

    calls   one row per model answer: key, attempt, request, response, tokens, cost
    facts   results that are slow to compute but not paid for (traces, verdicts): key, value

The key of a call is the hash of the whole request, so the same question is never asked twice. Answers are
stored as the server sent them; each reader decides anew whether one is usable. Headers, and therefore API
keys, are never written. Does not expire or delete anything: to forget, remove the file.
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
from typing import IO, Any, NamedTuple, Self
from urllib.parse import quote

from kernelmill.base.locks import share_lock, take_lock
from kernelmill.base.terminal import say
from kernelmill.errors import MillError, OutputError, SourceError

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
    value TEXT NOT NULL         -- zlib; text as it is in older journals
);
"""
_VERSION = 1
_APPLICATION = 0x4B6D696C
"""SQLite's `application_id`: identifies our journals among other databases."""
_PATIENCE = 60.0
"""Seconds of write retries: for any write while another process locks the file, and for paid answers after
any other operational error, such as a full disk. Facts are not retried on a full disk, since they cost
nothing."""


class Call(NamedTuple):
    """One model answer. `cost` is in US dollars. Cost and token counts are None where unknown."""

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
    """The part of a call that readers of the journal need."""

    response: str
    cost: float | None
    seconds: float
    """Duration of the call."""


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
_LOCKED = ("SQLITE_BUSY", "SQLITE_LOCKED")


class _Write(NamedTuple):
    statement: str
    values: tuple[object, ...]
    written: asyncio.Future[None]
    paid: bool


class JournalReader:
    """Reads a journal, also while a run is writing it. Changes nothing.

    A path of None is an empty journal, which is what a dry run sees before the first real run.
    """

    def __init__(self, path: Path | None) -> None:
        if path is None:
            self._reader = sqlite3.connect(":memory:")
            self._reader.executescript(_SCHEMA)
            self._held: IO[bytes] | None = None
            return
        if not path.is_file():
            raise SourceError(f"{path}: no such journal")
        # A plain read-only connection leaves files beside a journal that nobody writes, so such a journal is
        # opened as immutable. The shared lock keeps writers out meanwhile: they would change pages while we
        # read them.
        self._held = share_lock(path)
        still = self._held is not None and not path.with_name(f"{path.name}-wal").exists()
        mode = "immutable=1" if still else "mode=ro"
        self._reader = sqlite3.connect(f"file:{quote(str(path))}?{mode}", uri=True, timeout=60)
        try:
            if not _is_empty(self._reader, path):
                _check_ours(self._reader, path)
            else:
                self._reader.close()
                self._reader = sqlite3.connect(":memory:")
                self._reader.executescript(_SCHEMA)
        except BaseException:
            JournalReader.__exit__(self)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()
        if self._held is not None:
            self._held.close()

    def answers(self, key: str) -> list[Answer]:
        """All answers to a question, in order of attempt."""
        query = "SELECT response, cost, seconds FROM calls WHERE key = ? ORDER BY attempt"
        return [Answer(*row) for row in self._select(query, key)]

    def fact(self, key: str) -> str | None:
        found = self._select("SELECT value FROM facts WHERE key = ?", key)
        if not found:
            return None
        value = found[0][0]
        try:
            return value if isinstance(value, str) else zlib.decompress(value).decode("utf-8")
        except (zlib.error, UnicodeDecodeError) as error:
            raise SourceError(f"the journal cannot be read ({error}): is it damaged?") from None

    def _select(self, query: str, *values: object) -> list[Any]:
        try:
            return self._reader.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise SourceError(f"the journal cannot be read ({error}): is it damaged?") from None

    def calls(self, last: int | None = None) -> Iterator[Call]:
        """All calls, or only the `last` ones; oldest first."""
        newest = "SELECT * FROM calls ORDER BY id DESC LIMIT ?"
        query = f"SELECT {_COLUMNS} FROM ({newest}) ORDER BY id"
        try:
            for row in self._reader.execute(query, (-1 if last is None else last,)):
                call = Call(*row)
                yield call._replace(request=zlib.decompress(call.request))
        except (sqlite3.Error, zlib.error) as error:
            raise SourceError(f"the journal cannot be read ({error}): is it damaged?") from None

    def totals(self) -> list[Totals]:
        query = """
            SELECT stage, model, COUNT(*), COUNT(DISTINCT key), SUM(tokens_in), SUM(tokens_out),
                   SUM(tokens_reasoning), SUM(cost), SUM(cost IS NULL)
            FROM calls GROUP BY stage, model ORDER BY stage, model
        """
        return [Totals(*row) for row in self._select(query)]


class Journal(JournalReader):
    """The writable journal of a running stage, locked for one process. Use as a context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._queue: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self._patience = _PATIENCE
        """Set to 0 after it ran out once: later answers of the run get one try each."""

    def __enter__(self) -> Self:
        self._lock = take_lock(
            self.path,
            f"the journal {self.path} is in use by another kernelmill process: wait for it, or give --journal",
        )
        try:
            self._reader = _connect(self.path)
            writer = _connect(self.path)
            self._file = self.path.stat().st_ino
        except BaseException:
            self._lock.close()
            raise
        # Compress in an SQL function, so that the work happens in the writer thread, not in the event loop.
        writer.create_function("deflate", 1, lambda content: zlib.compress(content, 1), deterministic=True)
        self._thread = threading.Thread(target=self._write, args=(writer,), name="journal", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._queue.put(None)
        self._thread.join()
        self._reader.close()
        self._lock.close()

    async def append(self, call: Call) -> None:
        """Write an answer. Returns when it is on disk."""
        await self._submit(_INSERT, call, paid=True)

    async def add_fact(self, key: str, value: str) -> None:
        await self._submit(
            "INSERT OR REPLACE INTO facts (key, at, value) VALUES (?, ?, deflate(?))",
            (key, time.time(), value.encode("utf-8")),
        )

    async def _submit(self, statement: str, values: tuple[object, ...], paid: bool = False) -> None:
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.put(_Write(statement, values, written, paid))
        # Shielded: cancelling the caller must not cancel the future that the writer thread will resolve.
        await asyncio.shield(written)

    def _write(self, connection: sqlite3.Connection) -> None:
        """Run the writer thread: everything in the queue goes into one commit."""
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
            failure = self._commit(connection, batch)
            for write in batch:
                # After a hard stop the event loop is closed. The queued writes are on disk all the same.
                with contextlib.suppress(RuntimeError):
                    write.written.get_loop().call_soon_threadsafe(_resolve, write.written, failure)
        connection.close()

    def _commit(self, connection: sqlite3.Connection, batch: list[_Write]) -> Exception | None:
        """Write a batch, retrying for up to `_PATIENCE` where that may help.

        Returns the error to raise, or None.
        """
        started, told = time.monotonic(), False
        while True:
            try:
                if self.path.stat().st_ino != self._file:
                    return OutputError(f"the journal {self.path} was replaced while the run was going on")
                connection.execute("BEGIN IMMEDIATE")
                for write in batch:
                    connection.execute(write.statement, write.values)
                connection.execute("COMMIT")
                return None
            except FileNotFoundError:
                return OutputError(f"the journal {self.path} was removed while the run was going on")
            except Exception as error:  # noqa: BLE001  every waiter must be told of any error
                with contextlib.suppress(sqlite3.Error):  # the original error is reported below
                    connection.rollback()
                mendable = isinstance(error, sqlite3.OperationalError)
                locked = getattr(error, "sqlite_errorname", "").startswith(_LOCKED)
                worth_it = mendable and (locked or any(write.paid for write in batch))
                if not worth_it or time.monotonic() - started > self._patience:
                    self._patience *= not worth_it
                    full = ": is the disk full? Make room and run the same command again" if mendable else ""
                    return OutputError(f"the journal {self.path} could not be written ({error}){full}")
                if not told and not locked:
                    told = True
                    say(
                        f"The journal {self.path} cannot be written ({error}): trying for {self._patience:.0f} s. Is the disk full?"
                    )
            time.sleep(0.5)


def _resolve(written: asyncio.Future[None], failure: Exception | None) -> None:
    if not written.done():
        if failure is None:
            written.set_result(None)
        else:
            written.set_exception(failure)
            written.exception()  # a cancelled waiter never retrieves it, and asyncio would log that


def _connect(path: Path) -> sqlite3.Connection:
    try:
        # Autocommit: only the writer thread begins transactions, explicitly.
        connection = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise OutputError(f"the journal {path} cannot be opened ({error})") from None
    try:
        if _is_empty(connection, path):
            # One transaction: an interrupted creation leaves an empty file, not a seemingly foreign database.
            connection.executescript(
                f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA application_id={_APPLICATION}; PRAGMA user_version={_VERSION}; COMMIT;"
            )
        _check_ours(connection, path)
        if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
    except sqlite3.Error as error:
        connection.close()
        raise _not_usable(path, error) from None
    except BaseException:
        connection.close()
        raise
    return connection


def _is_empty(connection: sqlite3.Connection, path: Path) -> bool:
    try:
        return not connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]
    except sqlite3.Error as error:
        raise _not_usable(path, error) from None


def _check_ours(connection: sqlite3.Connection, path: Path) -> None:
    try:
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
    except sqlite3.Error as error:
        raise _not_usable(path, error) from None
    if application != _APPLICATION:
        raise SourceError(f"{path} is not a journal of kernelmill")
    if version != _VERSION:
        raise SourceError(
            f"{path} was written by another version of kernelmill (format {version}, not {_VERSION})"
        )


def _not_usable(path: Path, error: sqlite3.Error) -> MillError:
    """The error for a journal that cannot be opened.

    A full disk must not read like a foreign file: a user could then delete paid answers.
    """
    if error.sqlite_errorname in ("SQLITE_NOTADB", "SQLITE_CORRUPT"):
        return SourceError(f"{path} is not a journal ({error})")
    return OutputError(f"the journal {path} cannot be used now ({error})")
