"""Odd but real inputs through every stage from good rows to a dataset: the right result, or one line that says what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import evals_row, read_rows, write_rows

Mill = Callable[..., Any]
STAGES = {
    "unique": ["-o", "out.jsonl", "--by", "structure"],
    "decontaminate": ["-o", "out.jsonl", "--against", "bundled:problems"],
    "strip": ["-o", "out.jsonl"],
    "lengths": ["--tokenizer", "qwen-embedded", "--json", "out.json"],
    "publish": ["--to", "folder:out"],
}
"""Each with what it needs to be told; all read evals rows."""


def run(mill: Mill, stage: str, source: str = "rows.jsonl", *more: str) -> Any:
    return mill(stage, source, *STAGES[stage], *more, timeout=240)


def rows_out(folder: Path, stage: str) -> int:
    """How many rows the stage took."""
    if stage == "lengths":
        return int(json.loads((folder / "out.json").read_text())["rows"])
    if stage == "publish":
        return sum(json.loads((folder / "out/kernelmill.json").read_text())["rows"].values())
    return len(read_rows_exactly(folder / "out.jsonl"))


def told(done: Any) -> int:
    """Lines that say what is wrong, beside those that say what is being done."""
    assert "Traceback" not in done.stderr
    return sum(line.startswith("kernelmill: ") for line in done.stderr.splitlines())


def published(folder: Path) -> list[dict[str, Any]]:
    """The rows of the published dataset, as `datasets` reads them."""
    import datasets

    found = datasets.load_dataset(str(folder / "out"), cache_dir=str(folder / "cache"))
    return [row for part in found.values() for row in part]


@pytest.fixture(params=STAGES)
def stage(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_unicode_comes_through(tmp_path: Path, mill: Mill, stage: str) -> None:
    odd = "naïve ✓ 核 \u202e𝔘\U0001f600 \x7f \u2028"
    row = evals_row(1)
    row["completion"][0]["content"] = f"{odd}<answer>print('{odd}')</answer>"
    row["info"]["module_name"] = "Größe"
    row[odd] = odd
    write_rows(tmp_path / "rows.jsonl", [row])
    raw = json.dumps(row | {"example_id": 2}, ensure_ascii=False)
    (tmp_path / "more.jsonl").write_text(raw + "\n", encoding="utf-8")
    for source in ("rows.jsonl", "more.jsonl"):
        done = run(mill, stage, source)
        assert done.returncode == 0, done.stderr
        assert rows_out(tmp_path, stage) == 1
    if stage == "publish":
        assert published(tmp_path)[0][odd] == odd
    elif stage != "lengths":
        kept = read_rows_exactly(tmp_path / "out.jsonl")[0]
        assert kept[odd] == odd
        assert f"print('{odd}')" in kept["completion"][0]["content"]


def read_rows_exactly(path: Path) -> list[dict[str, Any]]:
    """By line ends alone: `splitlines` also breaks at U+2028."""
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]


def test_windows_line_ends_and_a_byte_order_mark_are_no_part_of_a_row(
    tmp_path: Path, mill: Mill, stage: str
) -> None:
    lines = [json.dumps(evals_row(n)) for n in range(3)]
    (tmp_path / "rows.jsonl").write_bytes(b"\xef\xbb\xbf" + "\r\n".join([*lines, "", ""]).encode())
    done = run(mill, stage)
    assert done.returncode == 0, done.stderr
    assert rows_out(tmp_path, stage) == 3
    if stage == "unique":
        assert (tmp_path / "out.jsonl").read_text().split("\n") == [*lines, ""]


def test_an_empty_file_is_an_empty_result_or_said_to_be_empty(tmp_path: Path, mill: Mill, stage: str) -> None:
    (tmp_path / "rows.jsonl").write_bytes(b"")
    done = run(mill, stage)
    if stage in ("lengths", "publish"):
        assert done.returncode == 1
        assert "has no rows" in done.stderr
        assert not (tmp_path / "out").exists()
    else:
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "out.jsonl").read_bytes() == b""


def test_one_row_without_a_line_end_is_a_row(tmp_path: Path, mill: Mill, stage: str) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps(evals_row(1)))
    done = run(mill, stage)
    assert done.returncode == 0, done.stderr
    assert rows_out(tmp_path, stage) == 1


@pytest.mark.heavy
def test_a_row_of_50_megabytes_goes_through(tmp_path: Path, mill: Mill, stage: str) -> None:
    thoughts = "Consider the block size again. " * 1_750_000
    row = evals_row(1)
    row["completion"][0]["content"] = f"<think>{thoughts}</think><answer>k</answer>"
    write_rows(tmp_path / "rows.jsonl", [row, evals_row(2)])
    assert (tmp_path / "rows.jsonl").stat().st_size > 50e6
    done = run(mill, stage)
    assert done.returncode == 0, done.stderr
    assert rows_out(tmp_path, stage) == 2


def test_rows_with_the_same_id_are_rows_of_their_own(tmp_path: Path, mill: Mill, stage: str) -> None:
    rows = [evals_row(n) | {"example_id": 7} for n in range(4)]
    write_rows(tmp_path / "rows.jsonl", rows)
    done = run(mill, stage)
    assert done.returncode == 0, done.stderr
    assert rows_out(tmp_path, stage) == 4


@pytest.mark.parametrize("missing", ["info", "completion", "reward"])
def test_a_missing_column_is_named_or_not_needed(
    tmp_path: Path, mill: Mill, stage: str, missing: str
) -> None:
    row = evals_row(2)
    del row[missing]
    write_rows(tmp_path / "rows.jsonl", [evals_row(1), row])
    needs = {
        "unique": {"info", "reward"},
        "decontaminate": {"info"},
        "strip": {"completion"},
        "lengths": set(),
        "publish": {"info", "completion", "reward"},
    }
    done = run(mill, stage)
    if missing in needs[stage]:
        assert done.returncode == 1
        assert "rows.jsonl:2" in done.stderr
        assert told(done) == 1, done.stderr
        assert not (tmp_path / "out.jsonl").exists()
        assert not (tmp_path / "out").exists()
    else:
        assert done.returncode == 0, done.stderr
        assert rows_out(tmp_path, stage) == 2


def test_columns_that_nobody_knows_stay(tmp_path: Path, mill: Mill, stage: str) -> None:
    write_rows(
        tmp_path / "rows.jsonl",
        [evals_row(1, extra={"deep": [1, None]}), evals_row(2), evals_row(3, other="x")],
    )
    done = run(mill, stage)
    assert done.returncode == 0, done.stderr
    assert rows_out(tmp_path, stage) == 3
    if stage == "publish":
        by_id = {row["example_id"]: row for row in published(tmp_path)}
        assert by_id[1]["extra"] == {"deep": [1, None]}
        assert by_id[2]["extra"] is None
        assert by_id[3]["other"] == "x"
    elif stage != "lengths":
        assert read_rows(tmp_path / "out.jsonl")[0]["extra"] == {"deep": [1, None]}


def test_mixed_types_in_a_column_stay_as_they_are_or_are_named(
    tmp_path: Path, mill: Mill, stage: str
) -> None:
    write_rows(tmp_path / "rows.jsonl", [evals_row(1, odd=1), evals_row(2, odd="one"), evals_row(3, odd=[1])])
    done = run(mill, stage)
    if stage == "publish":
        assert done.returncode == 1
        assert "column odd holds a whole number in rows.jsonl:1 and text in rows.jsonl:2" in done.stderr
        assert not (tmp_path / "out").exists()
        done = run(mill, stage, "rows.jsonl", "--json-columns", "odd")
        assert done.returncode == 0, done.stderr
        assert sorted(row["odd"] for row in published(tmp_path)) == ["1", "[1]", "one"]
    else:
        assert done.returncode == 0, done.stderr
        assert rows_out(tmp_path, stage) == 3
        if stage != "lengths":
            assert [row["odd"] for row in read_rows(tmp_path / "out.jsonl")] == [1, "one", [1]]


@pytest.mark.parametrize("line", [b'{"torn', b"[1]", b"\xff\xfe{", b"nonsense"])
def test_a_line_that_is_no_row_is_named(tmp_path: Path, mill: Mill, stage: str, line: bytes) -> None:
    good = json.dumps(evals_row(1)).encode()
    (tmp_path / "rows.jsonl").write_bytes(b"\n".join([good, line, good]))
    done = run(mill, stage)
    assert done.returncode == 1
    assert "rows.jsonl:2: " in done.stderr
    assert told(done) == 1, done.stderr
    assert not list(tmp_path.glob("out*"))
