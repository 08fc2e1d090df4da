from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from kernelmill.errors import OutputError, SourceError
from kernelmill.llm import journal as journal_module
from kernelmill.llm.journal import Call, Journal, JournalReader


def a_call(key: str, attempt: int = 0, cost: float | None = 0.5) -> Call:
    return Call(key, attempt, 1.0, "rate", "http://x", "m", 0.1, 10, 5, None, cost, b'{"q": 1}', '{"a": 1}')


def test_an_appended_answer_is_found_again_in_order(tmp_path: Path) -> None:
    async def run() -> None:
        with Journal(tmp_path / "j.sqlite") as journal:
            await journal.append(a_call("k", 0, 0.25))
            await journal.append(a_call("k", 1, None))
            assert [answer.cost for answer in journal.answers("k")] == [0.25, None]
            assert journal.answers("other") == []

    asyncio.run(run())


def test_the_same_attempt_cannot_be_written_twice(tmp_path: Path) -> None:
    async def run() -> None:
        with Journal(tmp_path / "j.sqlite") as journal:
            await journal.append(a_call("k"))
            with pytest.raises(OutputError, match="UNIQUE"):
                await journal.append(a_call("k"))

    asyncio.run(run())


def test_a_second_process_is_refused_while_one_writes(tmp_path: Path) -> None:
    with (
        Journal(tmp_path / "j.sqlite"),
        pytest.raises(OutputError, match="in use"),
        Journal(tmp_path / "j.sqlite"),
    ):
        pass


def test_it_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    async def run() -> None:
        with Journal(tmp_path / "j.sqlite") as journal:
            await journal.append(a_call("k"))
            with JournalReader(tmp_path / "j.sqlite") as reader:
                assert [call.request for call in reader.calls()] == [b'{"q": 1}']

    asyncio.run(run())


def test_unknown_cost_is_never_counted_as_zero(tmp_path: Path) -> None:
    async def run() -> None:
        with Journal(tmp_path / "j.sqlite") as journal:
            await journal.append(a_call("a", cost=None))
            assert journal.totals()[0].cost is None
            await journal.append(a_call("b", cost=1.0))
            totals = journal.totals()[0]
            assert (totals.cost, totals.unknown_cost, totals.calls) == (1.0, 1, 2)

    asyncio.run(run())


def test_another_file_is_not_taken_for_a_journal(tmp_path: Path) -> None:
    (tmp_path / "x.sqlite").write_text("this is a text file, not a database" * 100)
    with pytest.raises(SourceError, match="not a journal"):
        JournalReader(tmp_path / "x.sqlite")
    with pytest.raises(SourceError, match="not a journal"), Journal(tmp_path / "x.sqlite"):
        pass


def test_a_path_with_odd_characters_opens(tmp_path: Path) -> None:
    path = tmp_path / "a?b #c%20.sqlite"
    with Journal(path):
        pass
    with JournalReader(path) as reader:
        assert list(reader.calls()) == []


WRITER = """
import asyncio, sys
from pathlib import Path
from kernelmill.llm.journal import Call, Journal

async def main():
    with Journal(Path(sys.argv[1])) as journal:
        async def one(n):
            await journal.append(Call(f"k{n}", 0, 1.0, "s", "e", "m", 0.1, 1, 1, None, None, b"{}", "x" * 2000))
            print(n, flush=True)
        for start in range(0, 1000000, 50):
            await asyncio.gather(*(one(n) for n in range(start, start + 50)))

asyncio.run(main())
"""


def test_every_append_that_returned_survives_kill_nine(tmp_path: Path) -> None:
    path = tmp_path / "j.sqlite"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    said = [int(writer.stdout.readline()) for _ in range(120)]
    os.kill(writer.pid, signal.SIGKILL)
    said += (int(line) for line in writer.stdout.read().splitlines() if line)
    writer.wait()
    writer.stdout.close()
    with JournalReader(path) as reader:
        kept = {call.key for call in reader.calls()}
    assert {f"k{n}" for n in said} <= kept


def test_answers_that_arrive_together_share_a_commit(tmp_path: Path) -> None:
    """Otherwise durable writes would cost more than the calls: 256 at once must not take 256 syncs."""

    async def run() -> int:
        with Journal(tmp_path / "j.sqlite") as journal:
            before = _commits(tmp_path / "j.sqlite-wal")
            await asyncio.gather(*(journal.append(a_call(f"k{n}")) for n in range(256)))
            return _commits(tmp_path / "j.sqlite-wal") - before

    assert asyncio.run(run()) < 128


def _commits(wal: Path) -> int:
    """Frames of a write-ahead log that end a transaction: their header states the size of the database."""
    data = wal.read_bytes()
    page = int.from_bytes(data[8:12], "big")
    return sum(data[at + 4 : at + 8] != b"\0\0\0\0" for at in range(32, len(data), page + 24))


def test_a_full_disk_is_an_error_for_whoever_appends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "_PATIENCE", 0.6)

    async def run() -> None:
        with Journal(tmp_path / "j.sqlite") as journal:
            await journal.append(a_call("a"))
            # The nearest thing to a full disk: the database may not grow any more.
            await journal._submit("PRAGMA max_page_count=1", ())
            with pytest.raises(OutputError, match="is the disk full"):
                await journal.append(a_call("b" * 100_000))

    asyncio.run(run())


def test_a_write_that_fails_for_a_while_is_kept_and_written(tmp_path: Path) -> None:
    async def run() -> None:
        with Journal(tmp_path / "j.sqlite") as journal:
            # Another process holds the file's write lock, longer than SQLite itself would wait.
            other = sqlite3.connect(tmp_path / "j.sqlite", isolation_level=None)
            await journal._submit("PRAGMA busy_timeout=10", ())
            other.execute("BEGIN IMMEDIATE")
            waiting = asyncio.create_task(journal.append(a_call("k")))
            await asyncio.sleep(0.7)
            assert not waiting.done()
            other.execute("ROLLBACK")
            other.close()
            await waiting
            assert len(journal.answers("k")) == 1

    asyncio.run(run())


def test_a_value_that_cannot_be_written_does_not_hang_the_run(tmp_path: Path) -> None:
    async def run() -> None:
        with Journal(tmp_path / "j.sqlite") as journal:
            with pytest.raises(OutputError, match="could not be written"):
                await journal.append(a_call("k")._replace(tokens_in=2**70))
            await journal.append(a_call("k"))
            assert len(journal.answers("k")) == 1

    asyncio.run(run())


def test_a_journal_that_is_removed_under_a_run_is_an_error(tmp_path: Path) -> None:
    async def run() -> None:
        with Journal(tmp_path / "j.sqlite") as journal:
            await journal.append(a_call("a"))
            (tmp_path / "j.sqlite").unlink()
            with pytest.raises(OutputError, match="was removed"):
                await journal.append(a_call("b"))

    asyncio.run(run())


def test_somebody_elses_database_is_left_alone(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "x.sqlite")) as other:
        other.execute("CREATE TABLE calls (a)")
        other.commit()
    before = (tmp_path / "x.sqlite").read_bytes()
    with pytest.raises(SourceError, match="not a journal of kernelmill"), Journal(tmp_path / "x.sqlite"):
        pass
    with pytest.raises(SourceError, match="not a journal of kernelmill"):
        JournalReader(tmp_path / "x.sqlite")
    assert (tmp_path / "x.sqlite").read_bytes() == before


def test_reading_a_journal_leaves_nothing_beside_it(tmp_path: Path) -> None:
    with Journal(tmp_path / "j.sqlite"):
        pass
    before = sorted(path.name for path in tmp_path.iterdir())
    with JournalReader(tmp_path / "j.sqlite") as reader:
        assert reader.totals() == []
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_damaged_journal_is_told_in_one_line(tmp_path: Path) -> None:
    async def run() -> None:
        with Journal(tmp_path / "j.sqlite") as journal:
            await asyncio.gather(*(journal.append(a_call(f"k{n}")) for n in range(500)))

    asyncio.run(run())
    data = bytearray((tmp_path / "j.sqlite").read_bytes())
    data[8192:-4096] = b"\xff" * (len(data) - 8192 - 4096)
    (tmp_path / "j.sqlite").write_bytes(data)
    with JournalReader(tmp_path / "j.sqlite") as reader, pytest.raises(SourceError, match="is it damaged"):
        list(reader.calls())


def test_a_run_cannot_start_under_a_reader_that_would_see_torn_pages(tmp_path: Path) -> None:
    async def fill(first: int, number: int) -> None:
        with Journal(tmp_path / "j.sqlite") as journal:
            await asyncio.gather(*(journal.append(a_call(f"k{first + n}")) for n in range(number)))

    asyncio.run(fill(0, 500))
    with JournalReader(tmp_path / "j.sqlite") as reader:
        with pytest.raises(OutputError, match="in use"):
            asyncio.run(fill(500, 500))
        assert reader.totals()[0].calls == 500
    asyncio.run(fill(500, 500))
    with JournalReader(tmp_path / "j.sqlite") as reader:
        assert reader.totals()[0].calls == 1000


@pytest.mark.parametrize("made", ["", "BEGIN; CREATE TABLE x (a); ROLLBACK;"])
def test_a_journal_whose_making_was_interrupted_is_an_empty_one(tmp_path: Path, made: str) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "j.sqlite")) as started:
        started.executescript(made)
    (tmp_path / "j.sqlite").touch()
    with JournalReader(tmp_path / "j.sqlite") as reader:
        assert list(reader.calls()) == []
    with Journal(tmp_path / "j.sqlite") as journal:
        assert journal.answers("k") == []


def test_facts_are_compressed_and_those_of_older_journals_are_read_as_they_are(tmp_path: Path) -> None:
    path, long = tmp_path / "j.sqlite", "the same again, “quoted”; " * 400

    async def run() -> None:
        with Journal(path) as journal:
            await journal.add_fact("new", long)
            assert journal.fact("new") == long
            assert journal.fact("none") is None

    asyncio.run(run())
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        (size,) = connection.execute("SELECT length(value) FROM facts").fetchone()
        assert size < len(long) / 10
        connection.execute("INSERT INTO facts VALUES ('old', 1.0, 'as it is'), ('bad', 1.0, x'00')")
    with JournalReader(path) as reader:
        assert reader.fact("old") == "as it is"
        with pytest.raises(SourceError, match="damaged"):
            reader.fact("bad")
