"""What two runs publish has the same types, whatever their verdicts hold: `datasets` joins them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kernelmill.base.rows import Row
from kernelmill.curate.strip import Strip
from kernelmill.evaluate.verdict import Check, Flag, Status, Verdict
from tests.conftest import evals_row, read_rows, write_rows
from tests.publish.test_parquet import as_published, made, written

Mill = Callable[..., Any]
JOIN = """
import json, sys, datasets
both = [datasets.load_dataset(path, split="train", cache_dir=sys.argv[1]) for path in sys.argv[2:]]
print(json.dumps(datasets.concatenate_datasets(both).to_list()))
"""


def verdict(status: Status, kernel: str, **env: Any) -> dict[str, Any]:
    """A verdict as the evaluator writes it: most of its keys are names of what it found."""
    found = Verdict("0/0/0", status, "interpreter", env={"evaluator": "1.0", **env}, rewards={"correct": 1.0})
    found.compile = {"targets": {"sm_90": {"kernels": {kernel: {"ok": True, "registers": len(kernel)}}}}}
    found.checks = [Check(kernel, "pass", worst={kernel: [1, 2]})]
    found.flags = [Flag("A3.identity_copy", "info", {kernel: {"at": 3}})]
    return found.to_dict()


def run_row(n: int, found: dict[str, Any], **more: Any) -> dict[str, Any]:
    turn = {"completion": {"role": "assistant", "content": "k"}, "reward": None, "verdict": found}
    return evals_row(n, verdict=found, turns=[turn], extern=[], **more)


def one_run() -> list[dict[str, Any]]:
    rows = [run_row(n, verdict("PASSED", f"triton_fused_{n}"), tokens_in=None, level=None) for n in range(6)]
    return [{**row, "contaminated_kernelbench": None} for row in rows]


def another_run() -> list[dict[str, Any]]:
    hit = {"problem": "level1/1_x", "how": "n-grams", "share": 0.5}
    found = [verdict("TIMEOUT", f"gelu_kernel_{n}", gpu="H200", driver={"cuda": n}) for n in range(6)]
    rows = [
        run_row(n, one, tokens_in=12, level=1, contaminated_kernelbench=hit) for n, one in enumerate(found)
    ]
    rows[3]["extern"] = ["aten.mm"]
    return [{**row, "completion": [{**row["completion"][0], "reasoning": "Fuse both."}]} for row in rows]


def stripped(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    taken = [Strip("answer").take(Row(n, "x", json.dumps(row).encode())) for n, row in enumerate(rows)]
    return [json.loads(row) for row in taken if isinstance(row, bytes)]


def types_inside(kind: Any) -> set[Any]:
    inside = [kind.field(n).type for n in range(kind.num_fields)]
    return {kind}.union(*map(types_inside, inside))


def test_datasets_joins_what_two_runs_published_and_the_verdicts_are_whole(
    tmp_path: Path, mill: Mill
) -> None:
    runs = {"one": one_run(), "other": another_run()}
    for name, rows in runs.items():
        write_rows(tmp_path / f"{name}.jsonl", rows)
        done = mill("publish", f"{name}.jsonl", "--to", f"folder:{name}", "--split", "none")
        assert done.returncode == 0, done.stderr
    line = [sys.executable, "-c", JOIN, "cache", "one", "other"]
    joined = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert joined.returncode == 0, joined.stderr
    back = json.loads(joined.stdout)
    for row in back:
        row |= {name: json.loads(row[name]) for name in ("verdict", "turns")}
    assert back == as_published(runs["one"]) + runs["other"]
    card = (tmp_path / "one/README.md").read_text()
    assert "`verdict` and `turns` hold JSON text" in card
    assert 'json.loads(row["verdict"])' in card
    assert "1.0" in card[card.index("### Evaluator and hardware") :]


def test_new_kernels_in_a_verdict_make_no_new_columns_and_no_column_is_null(tmp_path: Path) -> None:
    schemas = []
    runs = {"one": one_run(), "other": another_run(), "both": one_run() + another_run()}
    runs |= {"stripped": stripped(another_run())}
    assert len(runs["stripped"]) == 6
    assert "reasoning" not in json.dumps(runs["stripped"])
    for name, rows in runs.items():
        (tmp_path / name).mkdir()
        written(rows, tmp_path / name)
        schemas.append(pq.read_schema(next((tmp_path / name / "made/data").glob("*.parquet"))))
        assert pa.null() not in set().union(*(types_inside(field.type) for field in schemas[-1]))
    assert all(schema == schemas[0] for schema in schemas)


def test_a_published_set_published_again_is_the_same(tmp_path: Path) -> None:
    first = written(one_run(), tmp_path)
    (tmp_path / "again").mkdir()
    assert written(first, tmp_path / "again") == first


def test_a_file_of_verdicts_has_a_column_for_each_of_its_parts(tmp_path: Path) -> None:
    rows = [verdict("PASSED", "a"), verdict("TIMEOUT", "b", gpu={"name": "H200"})]
    back = written(rows, tmp_path)
    texts = {name for name, value in rows[0].items() if isinstance(value, dict | list)}
    assert [{k: json.loads(v) if k in texts and v else v for k, v in row.items()} for row in back] == rows
    assert list(back[0]) == list(rows[0])


def test_a_number_or_a_word_in_a_column_called_turns_or_verdict_stays_what_it_is(tmp_path: Path) -> None:
    rows = [{"turns": 3, "verdict": "good"}, {"turns": 4, "verdict": None}]
    assert written(rows, tmp_path) == rows


def test_a_verdict_that_turns_up_late_or_after_a_text_is_json_text_too(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"a": n, "verdict": "none" if n % 2 else None} for n in range(3000)]
    rows[2500]["verdict"] = {"k": [1, {"é": None}]}
    back = written(rows, tmp_path)
    assert back[2500]["verdict"] == '{"k":[1,{"é":null}]}'
    del rows[2500], back[2500]
    assert back == rows
    assert made(tmp_path / "rows.jsonl", tmp_path / "twice").columns["verdict"] == "string"
    assert read_rows(tmp_path / "rows.jsonl")[2500]["verdict"] == {"k": [1, {"é": None}]}
