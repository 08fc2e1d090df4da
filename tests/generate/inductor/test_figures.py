"""The figures of the teacher that are kept keep its bounds, and say where they are from."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[3] / "bench"
PROBLEMS = Path(__file__).parents[3] / "data" / "problems"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(BENCH), *sys.path])
    import teacher  # type: ignore[import-not-found]

    return teacher


@pytest.mark.parametrize("name", ["teacher", "teacher_gpu"])
def test_nine_of_ten_bundled_problems_are_correct_without_a_library_call_and_compile(
    bench: Any, name: str
) -> None:
    found = json.loads((BENCH / "results" / f"{name}.json").read_text(encoding="utf-8"))
    assert bench.unmet(found) == []
    assert found["problems"] == len(list(PROBLEMS.rglob("*.py")))
    assert found["date"]
    assert found["versions"]["torch"]


def test_on_a_gpu_every_correct_one_is_timed_and_its_reward_is_its_speed_up() -> None:
    found = json.loads((BENCH / "results" / "teacher_gpu.json").read_text(encoding="utf-8"))
    assert "NVIDIA" in found["device"]
    rows = found["timed"]["rows"]
    assert len(rows) == found["correct_without_a_library_call_and_compiled"]
    for row in rows:
        assert row["reward"] == pytest.approx(row["speedup"], abs=1e-3)
        assert row["speedup"] == max(row["speedups"])
        assert {"eager", "compile"} <= set(row["baselines_us"])


def test_a_worse_share_is_told(bench: Any) -> None:
    worse = {"problems": 40, "correct_without_a_library_call_and_compiled": 35, "device": None}
    assert bench.unmet(worse)
    assert bench.unmet(worse | {"correct_without_a_library_call_and_compiled": 36}) == []
    assert bench.unmet(worse | {"correct_without_a_library_call_and_compiled": 36, "device": "a GPU"})
