from __future__ import annotations

import errno
import hashlib
import json
import os
from pathlib import Path

import pytest

from kernelmill.base.rows import Row
from kernelmill.errors import OutputError
from kernelmill.store import Output
from kernelmill.store.output import test_path as path_in_test_mode
from tests.conftest import read_rows


def test_kept_and_rejected_rows_and_the_manifest_are_there_after_commit(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "rows.jsonl"
    with Output(path) as output:
        output.keep(b'{"a":1}')
        output.reject(Row(1, "x:2", b'{"a":2}'), "too small", "small")
        output.reject(Row(2, "x:3", b'{"a":'), "torn", "bad")
        output.reject(Row(3, "x:4", b'{"a":4}'), "no answer", "failed", attempts=["what it said"])
        output.commit("rate", 4, {"threshold": 1}, {"by": "static"})
    assert path.read_bytes() == b'{"a":1}\n'
    assert read_rows(tmp_path / "deep" / "rows.rejected.jsonl") == [
        {"index": 1, "where": "x:2", "reason": "too small", "row": {"a": 2}},
        {"index": 2, "where": "x:3", "reason": "torn", "text": '{"a":'},
        {"index": 3, "where": "x:4", "reason": "no answer", "row": {"a": 4}, "attempts": ["what it said"]},
    ]
    manifest = json.loads((tmp_path / "deep" / "rows.manifest.json").read_bytes())
    assert manifest["rows"] == {
        "in": 4,
        "out": 1,
        "rejected": 3,
        "reasons": {"small": 1, "bad": 1, "failed": 1},
    }
    assert manifest["output"]["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert manifest["config"] == {"threshold": 1}


def test_a_row_that_went_missing_stops_the_commit(tmp_path: Path) -> None:
    with Output(tmp_path / "rows.jsonl") as output:
        output.keep(b"{}")
        with pytest.raises(AssertionError, match="2 rows in, but 1 kept"):
            output.commit("rate", 2, {}, {})
    assert not (tmp_path / "rows.jsonl").exists()


def test_a_failed_run_leaves_what_was_there_and_no_temporary_files(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("precious\n")
    with pytest.raises(RuntimeError), Output(path) as output:
        output.keep(b"{}")
        raise RuntimeError("boom")
    assert path.read_text() == "precious\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == [".rows.jsonl.lock", "rows.jsonl"]


def test_no_rows_at_all_make_empty_files(tmp_path: Path) -> None:
    with Output(tmp_path / "rows.jsonl") as output:
        output.commit("rate", 0, {}, {})
    assert (tmp_path / "rows.jsonl").read_bytes() == b""
    assert (tmp_path / "rows.rejected.jsonl").read_bytes() == b""


def test_two_writers_of_one_output_are_told_apart(tmp_path: Path) -> None:
    with (
        Output(tmp_path / "rows.jsonl"),
        pytest.raises(OutputError, match="another kernelmill process"),
        Output(tmp_path / "rows.jsonl"),
    ):
        pass


@pytest.mark.parametrize(
    ("name", "message"),
    [("", "is a folder"), ("rows.csv", "must end in .jsonl"), ("file/rows.jsonl", "cannot be written")],
)
def test_an_output_that_cannot_be_is_refused_before_any_work(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(OutputError, match=message), Output(tmp_path / name):
        pass


def test_test_mode_writes_beside_the_real_output() -> None:
    assert path_in_test_mode(Path("outputs/filtered_dataset.jsonl")) == Path(
        "outputs/filtered_dataset.test.jsonl"
    )


def test_a_full_disk_leaves_the_old_output_with_its_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Output(tmp_path / "rows.jsonl") as output:
        output.keep(b'{"old":1}')
        output.commit("rate", 1, {}, {})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left"), Output(tmp_path / "rows.jsonl") as output:
        output.keep(b'{"new":1}')
        monkeypatch.setattr(os, "fsync", full)
        output.commit("rate", 1, {}, {})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_row_that_is_not_json_is_kept_as_text(tmp_path: Path) -> None:
    with Output(tmp_path / "rows.jsonl") as output:
        for raw in (b'{"example_id":"a", garbage', b'{"a":"\xff"}', b"[1]"):
            output.reject(Row(0, "x:1", raw), "bad", "bad")
        output.commit("rate", 3, {}, {})
    assert [row["text"] for row in read_rows(tmp_path / "rows.rejected.jsonl")] == [
        '{"example_id":"a", garbage', '{"a":"\ufffd"}', "[1]",
    ]  # fmt: skip


def test_an_output_knows_its_own_files(tmp_path: Path) -> None:
    output = Output(tmp_path / "rows.jsonl")
    for name in (
        "rows.jsonl",
        "rows.rejected.jsonl",
        "rows.manifest.json",
        ".rows.jsonl.tmp",
        ".rows.jsonl.lock",
    ):
        assert output.owns(tmp_path / name)
    assert not output.owns(tmp_path / "rate.journal.sqlite")


def test_what_a_killed_run_left_half_written_is_not_taken_for_the_output(tmp_path: Path) -> None:
    for name in (".rows.jsonl.tmp", ".rows.rejected.jsonl.tmp"):
        (tmp_path / name).write_text('{"stale": 1}\n')
    with Output(tmp_path / "rows.jsonl") as output:
        output.commit("rate", 0, {}, {})
    assert (tmp_path / "rows.jsonl").read_bytes() == b""
    assert (tmp_path / "rows.rejected.jsonl").read_bytes() == b""
