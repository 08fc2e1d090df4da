"""Reading Hub datasets with the real client from a loopback Hub."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kernelmill.store.hub import find_splits
from kernelmill.testing.fake_hub import FakeHub, Fault
from tests.conftest import evals_row

READ = """
import json, sys
from kernelmill.settings.config import secret
from kernelmill.errors import MillError
from kernelmill.store import open_source
try:
    source = open_source(sys.argv[1], sys.argv[2] or None, secret("HF_TOKEN"))
    rows = [(row.where, json.loads(row.raw)) for row in source.rows()]
    again = [(row.where, json.loads(row.raw)) for row in source.rows()]
    assert rows == again
    print(json.dumps({"rows": rows, "origin": source.origin}))
except MillError as error:
    print(json.dumps({"error": str(error)}))
"""


def parquet(rows: list[dict[str, Any]]) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), buffer)
    return buffer.getvalue()


def jsonl(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub() as running:
        yield running


def read(hub: FakeHub, spec: str, split: str = "", **env: str) -> Any:
    """In a process of its own: the Hub's client reads its address when it is imported."""
    line = [sys.executable, "-c", READ, spec, split]
    environment = {**os.environ, **hub.environment(), **env}
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


TRAIN, VALIDATION = [evals_row(n) for n in range(4)], [evals_row(n) for n in range(4, 6)]


def test_all_splits_are_read_train_first(hub: FakeHub) -> None:
    sha = hub.put("dataset", "org/evals", {
        "data/validation-00000-of-00001.parquet": parquet(VALIDATION),
        "data/train-00000-of-00002.parquet": parquet(TRAIN[:2]),
        "data/train-00001-of-00002.parquet": parquet(TRAIN[2:]),
    })  # fmt: skip
    found = read(hub, "org/evals")
    assert [row for _, row in found["rows"]] == TRAIN + VALIDATION
    assert found["rows"][0][0] == f"org/evals@{sha[:7]}:data/train-00000-of-00002.parquet: row 0"
    assert found["origin"] == {
        "kind": "hub",
        "repo": "org/evals",
        "revision": sha,
        "splits": ["train", "validation"],
    }
    assert [row for _, row in read(hub, "org/evals", "validation")["rows"]] == VALIDATION
    assert "has no split 'test' (it has: train, validation)" in read(hub, "org/evals", "test")["error"]


def test_a_revision_is_a_sha_and_an_old_one_stays_readable(hub: FakeHub) -> None:
    first = hub.put("dataset", "org/evals", {"train.jsonl": jsonl(TRAIN)})
    hub.put("dataset", "org/evals", {"train.jsonl": jsonl(VALIDATION)})
    assert [row for _, row in read(hub, "org/evals")["rows"]] == VALIDATION
    assert [row for _, row in read(hub, f"org/evals@{first}")["rows"]] == TRAIN
    assert "no such revision" in read(hub, "org/evals@nonsense")["error"]


def test_the_card_says_which_files_make_a_split(hub: FakeHub) -> None:
    card = "---\nconfigs:\n- config_name: default\n  data_files:\n  - split: easy\n    path: a/*.jsonl\n  - split: hard\n    path: b.jsonl\n---\n"
    files = {
        "README.md": card.encode(),
        "a/1.jsonl": jsonl(TRAIN),
        "b.jsonl": jsonl(VALIDATION),
        "other.jsonl": jsonl(TRAIN),
    }
    hub.put("dataset", "org/card", files)
    assert [row for _, row in read(hub, "org/card")["rows"]] == TRAIN + VALIDATION
    assert [row for _, row in read(hub, "org/card", "hard")["rows"]] == VALIDATION


def test_a_private_dataset_needs_the_token(hub: FakeHub) -> None:
    hub.put("dataset", "org/private", {"train.jsonl": jsonl(TRAIN)}, private=True)
    assert len(read(hub, "org/private")["rows"]) == 4
    assert "set HF_TOKEN" in read(hub, "org/private", HF_TOKEN="")["error"]


@pytest.mark.parametrize(
    ("repo", "fault", "message"),
    [
        ("org/nothing", None, "the Hub has no public dataset org/nothing"),
        ("org/empty", None, "holds no data file"),
        ("org/evals", Fault("/api/datasets/org/evals", times=99, action=500), "the Hub answered 500"),
    ],
)
def test_what_the_hub_refuses_is_told_in_one_line(
    hub: FakeHub, repo: str, fault: Fault | None, message: str
) -> None:
    hub.put("dataset", "org/evals", {"train.jsonl": jsonl(TRAIN)})
    hub.put("dataset", "org/empty", {"README.md": b"# nothing"})
    if fault:
        hub.faults.append(fault)
    error = read(hub, repo)["error"]
    assert message in error
    assert "\n" not in error


def test_a_hub_out_of_reach_is_told_in_one_line(hub: FakeHub, tmp_path: Path) -> None:
    error = read(hub, "org/evals", HF_ENDPOINT="http://127.0.0.1:9")["error"]
    assert "the Hub cannot be reached" in error
    assert "org/evals: no file or folder of that name here" in error


def test_kernelbench_splits_are_named_by_their_files() -> None:
    names = [f"data/level_{n}-00000-of-00001.parquet" for n in (3, 1, 2)]
    assert find_splits(names, {}) == {
        f"level_{n}": [f"data/level_{n}-00000-of-00001.parquet"] for n in (1, 2, 3)
    }
