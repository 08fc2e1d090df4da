from __future__ import annotations

import datetime
import decimal
import gzip
import json
import math
import os
from pathlib import Path
from typing import Any

import huggingface_hub
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelmill.base.rows import RowReader
from kernelmill.errors import BadRow, SourceError
from kernelmill.store import open_source
from kernelmill.store.hub import find_splits
from tests.base.test_rows import json_values
from tests.conftest import evals_row, write_rows


def rows_of(path: Path | str) -> list[Any]:
    return [json.loads(row.raw) for row in open_source(str(path)).rows()]


def write(path: Path, data: bytes) -> Path:
    if path.suffix == ".gz":
        data = gzip.compress(data)
    elif path.suffix == ".zst":
        data = pa.compress(data, codec="zstd", asbytes=True)
    path.write_bytes(data)
    return path


def refuse_to_list(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Root may list every folder, so that a closed one must be played."""
    scandir = os.scandir

    def refuse(path: Any = ".") -> Any:
        if str(path).endswith(name):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)


ROWS = [evals_row(n) for n in range(5)]


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.ndjson"])
def test_every_kind_of_jsonl_gives_the_same_rows(tmp_path: Path, name: str) -> None:
    data = b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)
    assert rows_of(write(tmp_path / name, data)) == ROWS


def test_parquet_gives_the_same_rows(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "a.parquet", row_group_size=2)
    assert rows_of(tmp_path / "a.parquet") == ROWS


NANOSECONDS = 1_700_000_000_123_456_789
NOT_UTF8 = pa.array([b"fine", b"\xff"]).view(pa.string())


@pytest.mark.parametrize(
    ("array", "values"),
    [
        (pa.array([NANOSECONDS, None, -1], pa.timestamp("ns")), ["2023-11-14T22:13:20.123456789", None, "1969-12-31T23:59:59.999999999"]),
        (pa.array([0], pa.timestamp("s")), ["1970-01-01T00:00:00"]),
        (pa.array([1_500], pa.timestamp("ms", "Europe/Paris")), ["1970-01-01T00:00:01.500Z"]),
        (pa.array([1], pa.timestamp("us", "No/Such_Zone")), ["1970-01-01T00:00:00.000001Z"]),
        (pa.array([1, -90_000], pa.duration("ns")), ["PT0.000000001S", "-PT0.000090000S"]),
        (pa.array([90_061], pa.duration("s")), ["PT90061S"]),
        (pa.array([datetime.date(2024, 2, 29)]), ["2024-02-29"]),
        (pa.array([1], pa.time64("ns")), ["00:00:00.000000001"]),
        (pa.array([decimal.Decimal("1.50")]), ["1.50"]),
        (pa.array([b"\xff\x00"]), ["/wA="]),
        (pa.array([1.5, None]), [1.5, None]),
        (pa.array([1.5], pa.float16()), [1.5]),
        (pa.array([2**64 - 1], pa.uint64()), [2**64 - 1]),
        (pa.array([["a"], []]), [["a"], []]),
        (pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
        (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.timestamp("ns"))), [[["k", "1970-01-01T00:00:00.000000001"]]]),
        (pa.array([[1], None], pa.list_(pa.timestamp("ns"))), [["1970-01-01T00:00:00.000000001"], None]),
        (pa.array([{"at": [1]}, {"at": None}], pa.struct([("at", pa.list_(pa.duration("ns")))])), [{"at": ["PT0.000000001S"]}, {"at": None}]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)  # fmt: skip
def test_parquet_values_without_a_json_type_are_written_as_text(
    tmp_path: Path, array: Any, values: list[Any]
) -> None:
    pq.write_table(pa.table({"x": array}), tmp_path / "a.parquet", version="2.6")
    rows = list(open_source(str(tmp_path / "a.parquet")).rows())
    assert [json.loads(row.raw)["x"] for row in rows] == values
    assert [row.fault for row in rows] == [None] * len(values)


@pytest.mark.parametrize(
    ("array", "problem"),
    [
        (pa.array([1.0, math.nan]), "NaN or an infinity"),
        (pa.array([1.0, math.inf], pa.float32()), "NaN or an infinity"),
        (pa.array([[1.0], [2.0, -math.inf]]), "NaN or an infinity"),
        (pa.array([{"y": [{"z": 0.5}]}, {"y": [{"z": math.nan}]}]), "NaN or an infinity"),
        (pa.array([0, 2**60], pa.timestamp("us")), "cannot be written as JSON"),
        (pa.array([0, -(2**60)], pa.timestamp("ms", "UTC")), "cannot be written as JSON"),
        (pa.array([0, 2**30], pa.date32()), "cannot be written as JSON"),
        (NOT_UTF8, "cannot be written as JSON .'utf-8' codec"),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_a_parquet_value_that_json_cannot_hold_is_a_fault_of_its_row_alone(
    tmp_path: Path, array: Any, problem: str
) -> None:
    pq.write_table(pa.table({"n": [1, 2], "bad": array}), tmp_path / "a.parquet", version="2.6")
    good, bad = open_source(str(tmp_path / "a.parquet")).rows()
    assert good.fault is None
    assert json.loads(bad.raw) == {"n": 2, "bad": None}
    with pytest.raises(BadRow, match=f"a.parquet: row 1: column bad: {problem}"):
        RowReader(dict[str, Any])(bad)


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
        ("flipped.jsonl.gz", "the compressed file is damaged"),
        ("twice.parquet", "two columns are called a$"),
        ("twice_inside.parquet", r"two columns are called s\.a$"),
        ("x" * 5000, "cannot be read .File name too long"),
        ("~no-such-user-here/rows.jsonl", "not a path"),
        ("zero\0byte.jsonl", "not a path"),
        ("pipe.jsonl", "neither a file nor a folder"),
        ("piped", "not a plain file"),
        ("bundled:../pyproject.toml", "not among what ships"),
        ("bundled:/etc/passwd", "not among what ships"),
        ("closed", "cannot be listed"),
        ("bad.jsonl.zst", "cannot be read"),
        ("latin.py", "not UTF-8"),
    ],
)
def test_what_cannot_be_read_is_named_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str, message: str
) -> None:
    (tmp_path / "a.csv").write_text("a,b\n")
    (tmp_path / "empty").mkdir()
    (tmp_path / "mixed").mkdir()
    (tmp_path / "mixed" / "a.jsonl").write_text("{}\n")
    (tmp_path / "mixed" / "a.py").write_text("x = 1\n")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 this is not one")
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(os.urandom(10_000))[:500])
    (tmp_path / "bad.jsonl.gz").write_bytes(b"plain text")
    (tmp_path / "bad.jsonl.zst").write_bytes(b"plain text")
    flipped = bytearray(gzip.compress(b'{"a": 1}\n' * 1000))
    flipped[10] ^= 0xFF
    (tmp_path / "flipped.jsonl.gz").write_bytes(flipped)
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    pq.write_table(twice, tmp_path / "twice.parquet")
    pq.write_table(pa.table({"s": twice.to_struct_array()}), tmp_path / "twice_inside.parquet")
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "piped").mkdir()
    os.mkfifo(tmp_path / "piped" / "pipe.jsonl")
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed" / "a.jsonl").write_text("{}\n")
    refuse_to_list(monkeypatch, "closed")
    (tmp_path / "latin.py").write_bytes("# é".encode("latin-1"))
    with pytest.raises(SourceError, match=message) as caught:
        list(open_source(spec).rows())
    assert "\n" not in str(caught.value)
    assert spec in str(caught.value)


@pytest.mark.parametrize(
    "spec", [os.fsdecode(b"rows-\xff.jsonl"), os.fsdecode(b"org/\xff"), os.fsdecode(b"bundled:\xff")]
)
def test_a_name_that_is_not_utf8_is_refused_at_once(spec: str) -> None:
    Path(spec.replace("/", "-")).write_text("{}\n")
    with pytest.raises(SourceError, match=r"is it UTF-8\?") as caught:
        open_source(spec)
    str(caught.value).encode()


def test_a_file_in_a_folder_whose_name_is_not_utf8_is_named(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"rows-\xff.jsonl")).write_text("{}\n")
    with pytest.raises(SourceError, match="not UTF-8: rename it") as caught:
        open_source(str(tmp_path))
    str(caught.value).encode()


def test_no_name_is_no_source() -> None:
    with pytest.raises(SourceError, match="the source has no name"):
        open_source("")


def test_windows_text_is_a_bad_row_that_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes('{"a": 1}\r\n{"a": 2}\r\n'.encode("utf-16"))
    row = next(open_source(str(path)).rows())
    with pytest.raises(BadRow, match=r"a\.jsonl:1: not UTF-8; it looks like UTF-16"):
        RowReader(dict[str, Any])(row)


def test_a_file_that_vanished_is_an_error_not_a_traceback(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.jsonl", ROWS)
    source = open_source(str(path))
    path.unlink()
    with pytest.raises(SourceError, match="cannot be read"):
        list(source.rows())


def test_a_50_mb_row_is_read_whole(tmp_path: Path) -> None:
    row = {"text": "x" * 50_000_000}
    assert rows_of(write_rows(tmp_path / "a.jsonl", [row])) == [row]


@pytest.mark.parametrize(
    ("card", "splits"),
    [
        ({"configs": "odd"}, {"train": ["a.jsonl", "b.jsonl"]}),
        ({"configs": [1, None]}, {"train": ["a.jsonl", "b.jsonl"]}),
        ({"configs": [{"data_files": [{"split": "x"}, {"path": 3}]}]}, {"train": ["a.jsonl", "b.jsonl"]}),
        ({"configs": [{"data_files": "b*"}]}, {"train": ["b.jsonl"]}),
        ({"configs": [{"data_files": ["a*", "b*"]}]}, {"train": ["a.jsonl", "b.jsonl"]}),
        ({"configs": [{"data_files": {"test": "b*"}}]}, {"test": ["b.jsonl"]}),
    ],
)
def test_a_card_of_any_shape_gives_splits(card: dict[str, Any], splits: dict[str, list[str]]) -> None:
    assert find_splits(["b.jsonl", "a.jsonl"], card) == splits


def test_a_name_that_the_hub_does_not_allow_is_no_such_source() -> None:
    with pytest.raises(SourceError, match=r"no such file or folder, nor a name on the Hub \(Cannot have"):
        open_source("a--b/c..d")


@pytest.mark.parametrize("card", ["---\na: [\n---\n", "---\n- a\n---\n"])
def test_a_hub_card_that_is_not_yaml_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, card: str
) -> None:
    (tmp_path / "README.md").write_text(card)
    found = huggingface_hub.DatasetInfo(id="org/name", sha="0" * 40, siblings=[{"rfilename": "README.md"}])
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *_, **__: found)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda *_, **__: tmp_path / "README.md")
    with pytest.raises(SourceError, match="org/name: its card cannot be read"):
        open_source("org/name")
