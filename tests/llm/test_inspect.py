from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from kernelmill.base.terminal import plain
from kernelmill.errors import ConfigError, MillError, OutputError, SourceError
from kernelmill.llm.journal import Call, Journal
from kernelmill.settings.commands import run_tool
from tests.conftest import read_rows

ANSWER = json.dumps(
    {"choices": [{"message": {"content": "Rated by\nhand"}, "finish_reason": "stop"}], "usage": {}}, indent=1
)


def make_journal(path: Path, *responses: str) -> Path:
    async def write() -> None:
        with Journal(path) as journal:
            for n, response in enumerate(responses):
                await journal.append(
                    Call(
                        f"k{n}", 0, 1.0, "rate", "http://x", "m", 0.1, 10, 5, None, 0.5, b'{"q": 1}', response
                    )
                )

    asyncio.run(write())
    return path


def corrupt(path: Path, column: str, value: Any) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE calls SET {column} = ?", (value,))
    connection.close()


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return make_journal(tmp_path / "j.sqlite", ANSWER)


def test_a_file_without_an_action_is_totalled(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_tool("journal", [str(journal)]) == 0
    assert "$0.50" in capsys.readouterr().out
    assert run_tool("journal", ["totals", str(journal), str(journal)]) == 0
    assert capsys.readouterr().out.count("$0.50") == 2


def test_options_may_stand_anywhere(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for line in (["list", str(journal), "--last", "1"], ["--last", "1", "list", str(journal)], ["list", "--last", "1", str(journal)]):  # fmt: skip
        assert run_tool("journal", line) == 0
        assert "[stop] Rated by hand" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (["list", "--last", "0"], "expected a whole number from 1 on"),
        (["list", "--last", "x"], "expected a whole number from 1 on"),
        (["--nonsense"], "unrecognized arguments"),
        (["totals", "-o", "x.jsonl"], "-o is for export, and this is totals"),
    ],
)
def test_a_wrong_command_line_is_one_line(line: list[str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        run_tool("journal", line)
    assert "\n" not in str(caught.value)


def test_no_journal_here_is_said() -> None:
    with pytest.raises(SourceError, match="no journal here"):
        run_tool("journal", [])


@pytest.mark.parametrize(
    "response", ["garbage \x1b", "", "[1]", '{"choices": []}', "[" * 100_000, b"\xff\x00", '{"a": NaN}']
)
def test_an_answer_that_cannot_be_read_is_shown_as_text(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], response: str | bytes
) -> None:
    corrupt(journal, "response", response)
    text = response.decode("utf-8", "replace") if isinstance(response, bytes) else response
    assert run_tool("journal", ["list", str(journal)]) == 0
    assert f"[no chat completion] {plain(text[:100])}" in capsys.readouterr().out
    assert run_tool("journal", ["export", str(journal), "-o", str(tmp_path / "calls.jsonl")]) == 0
    (call,) = read_rows(tmp_path / "calls.jsonl")
    assert call["request"] == {"q": 1}
    whole = response in ("[1]", '{"choices": []}')
    assert call["response"] == (json.loads(response) if whole else text)


@pytest.mark.parametrize(
    ("column", "value"),
    [("seconds", "soon"), ("cost", "dear"), ("at", "then"), ("stage", b"\xff"), ("request", b"x"), ("attempt", "x")],
)  # fmt: skip
def test_a_damaged_call_is_one_line(
    journal: Path, capsys: pytest.CaptureFixture[str], column: str, value: object
) -> None:
    corrupt(journal, column, value)
    for action in ("list", "export"):
        with pytest.raises(SourceError, match="damaged") as caught:
            run_tool("journal", [action, str(journal)])
        assert "\n" not in str(caught.value)
    assert capsys.readouterr().out == ""


def test_a_time_that_no_calendar_has_is_no_traceback(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corrupt(journal, "at", 1e300)
    assert run_tool("journal", ["list", str(journal)]) == 0
    assert "at no known time" in capsys.readouterr().out


@pytest.mark.parametrize("action", ["list", "totals", "export"])
@pytest.mark.parametrize("schema", ["CREATE TABLE calls (x)", "CREATE TABLE other (x)", None])
def test_a_foreign_file_is_one_line(tmp_path: Path, action: str, schema: str | None) -> None:
    path = tmp_path / "foreign.sqlite"
    if schema is None:
        path.write_text("not a database at all, but long enough to look for a header in it" * 20)
    else:
        with sqlite3.connect(path) as connection:
            connection.execute(schema)
        connection.close()
    with pytest.raises(MillError, match=r"foreign\.sqlite"):
        run_tool("journal", [action, str(path)])


def test_an_export_never_overwrites_a_journal(journal: Path, tmp_path: Path) -> None:
    other = make_journal(tmp_path / "other.sqlite", ANSWER)
    (tmp_path / "link").symlink_to(journal)
    os.link(journal, tmp_path / "hard")
    before = journal.read_bytes(), other.read_bytes()
    for output in (
        "j.sqlite",
        "../" + tmp_path.name + "/j.sqlite",
        "link",
        "hard",
        "other.sqlite",
        "j.sqlite-wal",
    ):
        with pytest.raises(OutputError, match="name another file"):
            run_tool("journal", ["export", str(journal), "-o", output])
    assert (journal.read_bytes(), other.read_bytes()) == before
    assert not list(tmp_path.glob(".*.tmp"))


@pytest.mark.parametrize(
    ("output", "problem"),
    [
        ("folder", "is a folder: name a file"),
        (".", "is a folder: name a file"),
        ("file/calls.jsonl", "cannot be written"),
        ("x" * 300, "cannot be written .File name too long"),
        ("/dev/null", "not a plain file"),
        ("/proc/calls.jsonl", "cannot be written"),
    ],
)
def test_an_export_that_cannot_be_written_is_one_line(
    journal: Path, tmp_path: Path, output: str, problem: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=problem) as caught:
        run_tool("journal", ["export", str(journal), "-o", output])
    assert "\n" not in str(caught.value)


def test_an_export_that_fails_leaves_what_was_there(journal: Path, tmp_path: Path) -> None:
    (tmp_path / "calls.jsonl").write_text("precious\n")
    corrupt(journal, "seconds", "soon")
    with pytest.raises(SourceError):
        run_tool("journal", ["export", str(journal), "-o", "calls.jsonl"])
    assert (tmp_path / "calls.jsonl").read_text() == "precious\n"
    assert not list(tmp_path.glob(".*.tmp"))


def test_an_export_is_one_line_a_call_however_the_server_wrote_it(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_tool("journal", ["export", str(journal)]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["response"] == json.loads(ANSWER)
