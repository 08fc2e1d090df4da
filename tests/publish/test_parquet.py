"""Any row comes back from Parquet as it went in: by our own reader, and by `datasets`."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from kernelmill.errors import BadRow, SourceError
from kernelmill.publish.dataset import Built, DatasetSpec, build
from kernelmill.publish.parquet_writer import SplitWriter
from kernelmill.store import open_source
from tests.conftest import evals_row, many, write_rows

NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=4)
SMALL = st.integers(-(2**53), 2**53)
LEAVES = {
    "bool": st.booleans(),
    "int": st.integers(-(2**63), 2**63 - 1),
    "float": st.one_of(st.floats(allow_nan=False, allow_infinity=False), SMALL),
    "text": st.text(),
    "null": st.none(),
}


@st.composite
def kinds(draw: st.DrawFn, depth: int = 2) -> Any:
    """A type of a column: a word, a list of a type, or an object of named types."""
    shape = draw(st.sampled_from([*LEAVES, "list", "object"] if depth else list(LEAVES)))
    if shape == "list":
        return [draw(kinds(depth - 1))]
    if shape == "object":
        return draw(st.dictionaries(NAMES, kinds(depth - 1), min_size=1, max_size=3))
    return shape


def values(kind: Any) -> st.SearchStrategy[Any]:
    if isinstance(kind, list):
        return st.none() | st.lists(values(kind[0]), max_size=3)
    if isinstance(kind, dict):
        return st.none() | st.fixed_dictionaries(
            {}, optional={name: values(inner) for name, inner in kind.items()}
        )
    return st.none() | LEAVES[kind]


@st.composite
def tables(draw: st.DrawFn) -> list[dict[str, Any]]:
    columns = draw(st.dictionaries(NAMES, kinds(), min_size=1, max_size=4))
    row = st.fixed_dictionaries({}, optional={name: values(kind) for name, kind in columns.items()})
    return draw(st.lists(row, min_size=1, max_size=8))


def without_nulls(value: Any) -> Any:
    """A table cannot tell a missing key from null."""
    if isinstance(value, dict):
        return {name: without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value


def as_published(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Evals rows as they come back: completions have a field for thoughts, null where there are none."""
    return [{**row, "completion": [{"reasoning": None, **one} for one in row["completion"]]} for row in rows]


def made(source: Path, folder: Path, split: Any = "none", **more: Any) -> Built:
    folder.mkdir()
    given = {"json_columns": (), "license": None, "config": {}, **more}
    return build(
        DatasetSpec(open_source(str(source)), "x", None, None, split, 0.1, 42, 0.85, **given), folder
    )


def written(rows: list[dict[str, Any]], folder: Path, **more: Any) -> list[dict[str, Any]]:
    built = made(write_rows(folder / "rows.jsonl", rows), folder / "made", **more)
    assert built.rows == {"train": len(rows)}
    return [json.loads(row.raw) for row in open_source(str(folder / "made/data")).rows()]


@settings(max_examples=many(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(tables())
def test_any_row_comes_back_from_our_own_reader(rows: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            back = written(rows, Path(folder))
        except SourceError as error:
            assume("empty objects only" not in str(error) and "no columns" not in str(error))
            raise
    assert without_nulls(back) == without_nulls(rows)


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(tables())
def test_any_row_comes_back_from_datasets(rows: list[dict[str, Any]]) -> None:
    import datasets

    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            written(rows, folder)
        except SourceError as error:
            assume("empty objects only" not in str(error) and "no columns" not in str(error))
            raise
        loaded = datasets.load_dataset(str(folder / "made"), cache_dir=str(folder / "cache"))
        assert list(loaded) == ["train"]
        back = loaded["train"].to_list()
        del loaded
    assert without_nulls(back) == without_nulls(rows)


def schema_of(folder: Path) -> dict[str, str]:
    schema = pq.read_schema(next((folder / "made/data").glob("train-*")))
    return {field.name: str(field.type) for field in schema}


def test_listed_columns_have_their_types_whatever_the_rows_hold(tmp_path: Path) -> None:
    row = evals_row(1, reward=1, num_turns=2, extra=1)
    del row["task"]
    written([{"extra2": "x", **row}], tmp_path)
    assert schema_of(tmp_path) == {
        "example_id": "int64",
        "prompt": "list<element: struct<role: string, content: string>>",
        "completion": "list<element: struct<role: string, content: string, reasoning: string>>",
        "task": "string",
        "reward": "double",
        "generation_ms": "double",
        "scoring_ms": "double",
        "total_ms": "double",
        "info": "struct<module_name: string, python_code: string, triton_code: string>",
        "answer": "string",
        "speedup_reward": "double",
        "num_turns": "double",
        "oai_tools": "string",
        "extra2": "string",
        "extra": "int64",
    }
    assert list(schema_of(tmp_path))[:13] == list(evals_row(1))


@pytest.mark.parametrize(
    ("thoughts", "more"),
    [
        ({}, ""),
        ({"reasoning": None}, ""),
        ({"reasoning": "why"}, ""),
        # Chat templates read this one, and some write a null as the word None: it is there where a run has it.
        ({"reasoning_content": "why"}, ", reasoning_content: string"),
        ({"reasoning_content": None}, ", reasoning_content: string"),
    ],
)
def test_completions_have_a_field_for_thoughts_whether_anybody_thought_or_not(
    thoughts: dict[str, Any], more: str, tmp_path: Path
) -> None:
    message = {**thoughts, "role": "assistant", "content": "a"}
    back = written([evals_row(1), evals_row(2, completion=[message])], tmp_path)
    found = schema_of(tmp_path)["completion"]
    assert found == f"list<element: struct<role: string, content: string, reasoning: string{more}>>"
    assert (
        back[1]["completion"][0] | {"reasoning": thoughts.get("reasoning")} | thoughts
        == back[1]["completion"][0]
    )


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [{"a": 1}, {"a": "x"}],
            "column a holds a whole number in .*rows.jsonl:1 and text in .*rows.jsonl:2",
        ),
        (
            [{"a": {"b": [1]}}, {"a": {"b": [True]}}],
            r"column a.b\[\] holds a whole number .* and true or false",
        ),
        ([{"a": [1]}, {"a": {"b": 1}}], "column a holds a list .* and an object"),
        ([{"a": 2**63}], "needs more than 64 bits; publish the column as JSON text with --json-columns a"),
        (
            [{"a": 0.5}, {"a": 2**53 + 1}],
            r"rows.jsonl:2: field \$.a: a whole number that a float cannot hold",
        ),
        (
            [{"a": 2**53 + 1}, {"a": 0.5}],
            r"rows.jsonl:1: field \$.a: a whole number that a float cannot hold",
        ),
        ([{"a": {}}], "column a holds empty objects only"),
        ([{}], "the rows have no columns"),
        ([{"": 1}], "a column called ''"),
        ([{"a": {str(n): 1 for n in range(1001)}}], "column a has more than 1,000 different keys"),
        ([evals_row(1, reward="high")], r"field \$.reward: expected a number, got text"),
        ([evals_row(1, prompt="do it")], r"field \$.prompt: expected a list, got text"),
        ([evals_row(1, example_id=1.5)], r"field \$.example_id: expected a whole number, got a number"),
        ([evals_row(1, difficulty="High")], r"field \$.difficulty: expected low, medium or high, got 'High'"),
        (
            [evals_row(1, difficulty="low"), evals_row(2, difficulty=None)],
            "expected low, medium or high, got null",
        ),
        ([evals_row(1), {"example_id": 2}], r"field \$.prompt: the column is missing"),
        ([evals_row(1, info="{}")], r"field \$.info"),
    ],
)
def test_what_no_column_can_hold_is_told_by_column_and_row(
    tmp_path: Path, rows: list[dict[str, Any]], message: str
) -> None:
    with pytest.raises(SourceError, match=message):
        written(rows, tmp_path)


@pytest.mark.parametrize("bare", [0, 1, 2500])
def test_a_row_without_its_difficulty_among_rows_that_have_one_is_not_passed_over(
    tmp_path: Path, bare: int
) -> None:
    rows = [evals_row(n, **({} if n == bare else {"difficulty": "low"})) for n in range(bare + 3)]
    with pytest.raises(BadRow, match=rf"rows.jsonl:{bare + 1}: field \$.difficulty: the column is missing"):
        written(rows, tmp_path)


def test_a_difficulty_that_turns_up_late_is_missed_in_the_rows_before(tmp_path: Path) -> None:
    rows = [evals_row(n) for n in range(2500)] + [evals_row(2500, difficulty="low")]
    with pytest.raises(BadRow, match=r"rows.jsonl:1: field \$.difficulty: the column is missing"):
        written(rows, tmp_path)


def test_a_column_of_anything_is_published_as_json_text_on_request(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"a": 1, "b": 1}, {"a": "x"}, {"a": [{"k": 2**70}]}, {"a": None}]
    back = written(rows, tmp_path, json_columns=("a",))
    assert [row["a"] for row in back] == ["1", "x", '[{"k":1180591620717411303424}]', None]
    with pytest.raises(SourceError, match="--json-columns c: no row has this column"):
        made(tmp_path / "rows.jsonl", tmp_path / "again", json_columns=("a", "c"))


def test_whole_numbers_become_floats_where_they_stand_among_floats(tmp_path: Path) -> None:
    assert written([{"a": 1}, {"a": 0.5}, {"a": 2**53}], tmp_path) == [{"a": 1.0}, {"a": 0.5}, {"a": 2.0**53}]
    assert schema_of(tmp_path) == {"a": "double"}


@pytest.mark.parametrize("late", [{"b": "x"}, {"a": 0.5}, {"c": {"d": None}}])
def test_a_column_that_turns_up_late_is_in_every_row(
    tmp_path: Path, late: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernelmill.publish.parquet_writer.GROUP_ROWS", 500)
    rows: list[dict[str, Any]] = [{"a": n, "c": {"e": 1}} for n in range(3000)]
    rows[2500] |= late
    assert without_nulls(written(rows, tmp_path)) == without_nulls(rows)
    assert sorted(path.name for path in (tmp_path / "made").rglob("*.part")) == []


def test_info_that_is_a_json_string_is_published_as_the_object(tmp_path: Path) -> None:
    rows = [evals_row(n) for n in range(3)]
    given = [rows[0], {**rows[1], "info": json.dumps(rows[1]["info"])}, rows[2]]
    assert written(given, tmp_path) == as_published(rows)
    (tmp_path / "2").mkdir()
    assert written(given[1:], tmp_path / "2") == as_published(rows[1:])


def test_the_same_rows_give_the_same_bytes_in_shards_and_in_order(tmp_path: Path) -> None:
    import pyarrow as pa

    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    found = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        with SplitWriter(folder, "train", schema, shard_bytes=100_000) as writer:
            for first in range(0, 20_000, 100):
                numbers = range(first, first + 100)
                texts = [f"{n * 2654435761 % 2**64:x}" * 8 for n in numbers]
                writer.add(
                    pa.RecordBatch.from_arrays([pa.array(numbers), pa.array(texts)], schema=schema), 800_000
                )
            files = writer.finish()
        found.append([(file.name, file.sha256) for file in files])
        back = [value for file in files for value in pq.read_table(file.path).column("a").to_pylist()]
        assert back == list(range(20_000))
    assert found[0] == found[1]
    assert len(found[0]) >= 2
    assert found[0][0][0] == f"data/train-00000-of-{len(found[0]):05}.parquet"


def test_a_row_of_fifty_megabytes_comes_back(tmp_path: Path) -> None:
    rows = [evals_row(1), evals_row(2, answer="0123456789" * 5_000_000), evals_row(3)]
    assert written(rows, tmp_path) == as_published(rows)


def test_windows_line_ends_blank_lines_and_equal_ids_are_no_trouble(tmp_path: Path) -> None:
    rows = [evals_row(1), evals_row(1), evals_row(1, reward=0.5)]
    lines = "\r\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    (tmp_path / "rows.jsonl").write_bytes(b"\xef\xbb\xbf" + lines.encode() + b"\r\n\r\n")
    made(tmp_path / "rows.jsonl", tmp_path / "made")
    back = [json.loads(row.raw) for row in open_source(str(tmp_path / "made/data")).rows()]
    assert back == as_published(rows)


def test_no_rows_are_no_dataset(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(b"\n")
    with pytest.raises(SourceError, match="has no rows: nothing is published"):
        made(tmp_path / "rows.jsonl", tmp_path / "made")


@pytest.mark.parametrize("late", [1, 1500])
def test_a_listed_column_that_only_a_later_row_has_is_not_called_missing(tmp_path: Path, late: int) -> None:
    rows = [evals_row(n) for n in range(late + 1)]
    for row in rows[:-1]:
        del row["task"]
    for row in rows:
        del row["answer"]
    built = made(write_rows(tmp_path / "rows.jsonl", rows), tmp_path / "made")
    assert built.notes == ["no row has answer: published as null"]
