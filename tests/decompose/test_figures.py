"""What the benchmarks of decompose found over KernelBench: kept in bench/results, made again by bench/decompose.py and bench/decompose_files.py."""

from __future__ import annotations

import json
from typing import Any

from tests.conftest import ROOT


def kept(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / f"bench/results/{name}.json").read_text(encoding="utf-8"))
    return found


def test_all_problems_of_levels_1_to_3_were_proven() -> None:
    found = kept("decompose")
    assert {name: level["proven"] for name, level in found["levels"].items()} == {
        "level1": 100,
        "level2": 100,
        "level3": 50,
    }
    assert found["not_proven"] == []
    assert all(found["holds"].values())


def test_the_stricter_proof_took_no_more_processor_time_than_the_one_before_it() -> None:
    found = kept("decompose_beside")
    assert found["problems"] >= 25
    assert found["proven"]["this"] == found["proven"]["other"] == found["problems"]
    assert found["ratio"] <= 1


def test_every_emitted_file_ran_on_another_device() -> None:
    assert kept("decompose_files")["meta"]["tried"] >= 2800


def test_a_hundred_emitted_files_ran_on_a_gpu() -> None:
    found = kept("decompose_files")
    assert found["cuda"]["tried"] == 100
    assert {part: one["failed"] for part, one in found.items() if one["failed"]} == {}
