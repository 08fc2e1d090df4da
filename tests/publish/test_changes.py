"""What would change, by rows and columns; and what is told of where rows come from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kernelmill.publish.changes import SplitChange, compare
from kernelmill.publish.lineage import Lineage, without_folders
from kernelmill.store import open_source
from kernelmill.store.source import DataFile
from tests.conftest import evals_row, write_rows


def files(folder: Path, name: str, **splits: list[dict[str, Any]]) -> dict[str, list[DataFile]]:
    return {
        split: [DataFile(write_rows(folder / f"{name}-{split}.jsonl", rows), f"{name}-{split}")]
        for split, rows in splits.items()
    }


def change(folder: Path, old: list[dict[str, Any]], new: list[dict[str, Any]]) -> SplitChange:
    return compare(files(folder, "old", train=old), files(folder, "new", train=new), {}, {}).splits["train"]


def test_rows_are_known_by_what_names_them(tmp_path: Path) -> None:
    old = [evals_row(n) for n in range(5)]
    new = [evals_row(1), evals_row(0, reward=0.5), evals_row(7), evals_row(3), evals_row(4)]
    assert change(tmp_path, old, new) == SplitChange(
        before=5, after=5, added=1, removed=1, changed=1, unchanged=3
    )


def test_of_rows_with_the_same_names_the_first_is_the_first(tmp_path: Path) -> None:
    old = [evals_row(1, reward=r) for r in (0.1, 0.2, 0.3)]
    assert change(tmp_path, old, [*old, evals_row(1)]).added == 1
    assert change(tmp_path, old, [old[0], evals_row(1, reward=0.9), old[2]]) == SplitChange(
        before=3, after=3, changed=1, unchanged=2
    )


def test_rows_without_a_name_are_known_by_their_content_and_each_one_counts(tmp_path: Path) -> None:
    assert change(tmp_path, [{"a": 1}, {"a": 1}, {"a": 2}], [{"a": 1}, {"a": 3}]) == SplitChange(
        before=3, after=2, added=1, removed=2, unchanged=1
    )


def test_a_null_or_another_order_of_columns_is_no_change(tmp_path: Path) -> None:
    assert change(tmp_path, [{"uuid": 1, "x": None, "y": {"z": None}}], [{"y": {}, "uuid": 1}]).unchanged == 1


def test_rows_that_change_sides_are_counted_as_moved(tmp_path: Path) -> None:
    rows = [evals_row(n) for n in range(4)]
    old = files(tmp_path, "old", train=rows[:3], validation=rows[3:])
    changes = compare(old, files(tmp_path, "new", train=rows), {}, {})
    assert changes.moved == 1
    assert changes.splits["train"].added == 1
    assert changes.splits["validation"] == SplitChange(before=1, removed=1)


@given(st.lists(st.integers(0, 5), max_size=12), st.lists(st.integers(0, 5), max_size=12))
def test_every_row_is_counted_once_before_and_once_after(old: list[int], new: list[int]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        found = change(Path(folder), [{"uuid": n} for n in old], [{"uuid": n} for n in new])
    assert (found.before, found.after) == (len(old), len(new))
    assert found.before == found.removed + found.changed + found.unchanged
    assert found.after == found.added + found.changed + found.unchanged


def test_columns_that_come_go_or_change_are_named() -> None:
    found = compare(
        {}, {}, {"a": "int64", "b": "string", "c": "bool"}, {"c": "bool", "a": "double", "d": "null"}
    )
    assert found.columns == [
        "column d is new (null)",
        "column b goes (string)",
        "column a: int64 becomes double",
        "the order of the columns changes",
    ]


def test_folders_and_secrets_are_taken_out_of_what_is_told(monkeypatch: Any) -> None:
    from kernelmill.settings import config

    monkeypatch.setenv("HF_TOKEN", "hf_verysecret")
    config.environment.cache_clear()
    given = {
        "source": {"kind": "file", "path": "/home/alice/private/x.jsonl"},
        "output": {"path": "out/deep/y.jsonl"},
        "config": {
            "journal": "../j/k.sqlite",
            "against": ["/data/bench/KernelBench", "ScalingIntelligence/KernelBench"],
            "base_url": "https://host/api/v1",
            "source": "siro1/evals",
            "note": "read /home/alice/a/b.txt with hf_verysecret and/or more",
            "threshold": 0.85,
        },
    }
    told = without_folders(given)
    assert told["source"]["path"] == "x.jsonl"
    assert told["output"]["path"] == "y.jsonl"
    assert told["config"] == {
        "journal": "k.sqlite",
        "against": ["KernelBench", "ScalingIntelligence/KernelBench"],
        "base_url": "https://host/api/v1",
        "source": "siro1/evals",
        "note": "read b.txt with [HF_TOKEN] and/or more",
        "threshold": 0.85,
    }


def test_a_chain_of_stages_is_followed_as_long_as_it_fits(tmp_path: Path) -> None:
    for name, source, rows_in, rows_out in (("b", "a", 9, 5), ("c", "b", 5, 3), ("d", "c", 3, 2)):
        write_rows(tmp_path / f"{name}.jsonl", [])
        manifest = {
            "stage": f"stage-{name}",
            "output": {"path": f"{name}.jsonl", "rows": rows_out, "sha256": name},
            "rows": {"in": rows_in, "out": rows_out},
            "source": {"kind": "file", "path": f"/gone/{source}.jsonl"},
            "config": {},
        }
        (tmp_path / f"{name}.manifest.json").write_text(json.dumps(manifest))

    def stages(sha: str) -> tuple[list[str], str | None]:
        lineage = Lineage(open_source(str(tmp_path / "d.jsonl")))
        lineage.follow(sha)
        return [stage["stage"] for stage in lineage.stages], lineage.note

    assert stages("d") == (["stage-b", "stage-c", "stage-d"], None)
    assert stages("other")[0] == []
    assert "is not what its manifest says it was" in (stages("other")[1] or "")
    manifest = json.loads((tmp_path / "b.manifest.json").read_text())
    manifest["output"]["rows"] = 6
    (tmp_path / "b.manifest.json").write_text(json.dumps(manifest))
    assert stages("d")[0] == ["stage-c", "stage-d"]
    assert "was made again since it was used" in (stages("d")[1] or "")
