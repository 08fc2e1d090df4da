from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelmill.errors import SourceError
from kernelmill.store import open_source
from tests.conftest import evals_row, write_rows
from tests.test_rows import json_values


def rows_of(path: Path | str) -> list[Any]:
    return [json.loads(row.raw) for row in open_source(str(path)).rows()]


def write(path: Path, data: bytes) -> Path:
    if path.suffix == ".gz":
        data = gzip.compress(data)
    elif path.suffix == ".zst":
        data = pa.compress(data, codec="zstd", asbytes=True)
    path.write_bytes(data)
    return path


ROWS = [evals_row(n) for n in range(5)]


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.ndjson"])
def test_every_kind_of_jsonl_gives_the_same_rows(tmp_path: Path, name: str) -> None:
    data = b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)
    assert rows_of(write(tmp_path / name, data)) == ROWS


def test_parquet_gives_the_same_rows(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "a.parquet", row_group_size=2)
    assert rows_of(tmp_path / "a.parquet") == ROWS


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@given(st.lists(st.dictionaries(st.text(), json_values, max_size=4), max_size=6))
def test_any_row_comes_back_byte_for_byte(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    lines = [json.dumps(row, ensure_ascii=False).encode() for row in rows]
    path = write(tmp_path / "a.jsonl", b"\r\n".join(lines))
    assert [row.raw for row in open_source(str(path)).rows()] == lines


def test_windows_line_ends_blank_lines_and_a_byte_order_mark_are_no_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", b'\xef\xbb\xbf{"a":1}\r\n\r\n   \n{"a":2}')
    assert [(row.where.rsplit(":", 1)[1], row.raw) for row in open_source(str(path)).rows()] == [
        ("1", b'{"a":1}'),
        ("4", b'{"a":2}'),
    ]


def test_an_empty_file_has_no_rows(tmp_path: Path) -> None:
    assert rows_of(write(tmp_path / "a.jsonl", b"")) == []


def test_a_folder_is_read_in_natural_order_without_rejected_files(tmp_path: Path) -> None:
    for number in (10, 2, 1):
        write_rows(tmp_path / f"part-{number}.jsonl", [{"n": number}])
    write_rows(tmp_path / "part-1.rejected.jsonl", [{"n": -1}])
    assert rows_of(tmp_path) == [{"n": 1}, {"n": 2}, {"n": 10}]


def test_problem_files_are_rows_with_level_id_and_name(tmp_path: Path) -> None:
    for name in ("level1/10_B.py", "level1/2_A.py", "level_2/1_C.py", "level1/__pycache__/1_X.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"# {name}\n")
    rows = rows_of(tmp_path)
    assert [(row["level"], row["problem_id"], row["name"]) for row in rows] == [
        (1, 2, "2_A"),
        (1, 10, "10_B"),
        (2, 1, "1_C"),
    ]
    assert rows[0]["python_code"] == "# level1/2_A.py\n"


def test_rows_can_be_read_again_and_a_changed_file_is_an_error(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.jsonl", ROWS)
    source = open_source(str(path))
    assert len(list(source.rows())) == len(list(source.rows())) == 5
    with path.open("a") as file:
        file.write("{}\n")
    with pytest.raises(SourceError, match="changed while it was being used"):
        list(source.rows())


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("missing.jsonl", "no such file or folder"),
        ("no/such/folder/at/all", "no such file or folder"),
        ("a.csv", "cannot read this kind of file"),
        ("empty", "holds no data file"),
        ("mixed", "holds both"),
        ("bad.parquet", "not a Parquet file"),
        ("cut.jsonl.gz", "cut off"),
        ("bad.jsonl.gz", "cannot be read"),
        ("bad.jsonl.zst", "cannot be read"),
        ("latin.py", "not UTF-8"),
    ],
)
def test_what_cannot_be_read_is_named_in_one_line(tmp_path: Path, spec: str, message: str) -> None:
    (tmp_path / "a.csv").write_text("a,b\n")
    (tmp_path / "empty").mkdir()
    (tmp_path / "mixed").mkdir()
    (tmp_path / "mixed" / "a.jsonl").write_text("{}\n")
    (tmp_path / "mixed" / "a.py").write_text("x = 1\n")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 this is not one")
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(os.urandom(10_000))[:500])
    (tmp_path / "bad.jsonl.gz").write_bytes(b"plain text")
    (tmp_path / "bad.jsonl.zst").write_bytes(b"plain text")
    (tmp_path / "latin.py").write_bytes("# é".encode("latin-1"))
    with pytest.raises(SourceError, match=message) as caught:
        list(open_source(spec).rows())
    assert "\n" not in str(caught.value)
    assert spec in str(caught.value)


def test_a_file_that_vanished_is_an_error_not_a_traceback(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.jsonl", ROWS)
    source = open_source(str(path))
    path.unlink()
    with pytest.raises(SourceError, match="cannot be read"):
        list(source.rows())


def test_a_50_mb_row_is_read_whole(tmp_path: Path) -> None:
    row = {"text": "x" * 50_000_000}
    assert rows_of(write_rows(tmp_path / "a.jsonl", [row])) == [row]
