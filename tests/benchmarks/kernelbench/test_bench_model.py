"""`bench-model`: results by level as KernelBench writes them, whatever the model answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernelmill.benchmarks.kernelbench.results import eval_results, summary
from kernelmill.cli import main
from kernelmill.settings.commands import run_tool
from kernelmill.testing.fake_endpoint import FakeEndpoint
from tests.generate.synthesize.answers import GOOD, PROSE, WRONG, problem


def row(problem_name: str, rollout: int, verdict: str, speedup: float | None = None) -> dict[str, Any]:
    perf = None
    if speedup is not None:
        perf = {
            "median_us": 50.0, "mean_us": 51.0, "std_us": 1.0, "min_us": 49.0, "max_us": 60.0, "n": 40,
            "device": "cuda:0", "speedup": speedup / 2, "baselines": {"eager": 50.0 * speedup, "compile": 25.0 * speedup},
        }  # fmt: skip
    status = {"correct": "PASSED", "incorrect": "INCORRECT_NUMERICAL", "inconclusive": "UNSUPPORTED"}[verdict]
    judged = {"verdict": verdict, "status": status, "tier": "gpu_timed", "error": "", "perf": perf}
    return {
        "problem_name": problem_name,
        "rollout": rollout,
        "verdict": judged,
        "info": {"module_name": "Model"},
    }


def test_samples_stand_under_their_problems_number_in_order_with_times_in_milliseconds() -> None:
    found = eval_results(
        [row("10_B", 1, "incorrect"), row("10_B", 0, "correct", 2.0), row("9_A", 0, "incorrect")]
    )
    assert list(found) == ["9", "10"]
    assert [sample["sample_id"] for sample in found["10"]] == [0, 1]
    best = found["10"][0]
    assert (best["correctness"], best["compiled"], best["runtime"], best["ref_runtime"]) == (
        True,
        True,
        0.05,
        0.1,
    )
    assert best["runtime_stats"]["mean"] == pytest.approx(0.051)
    assert found["9"][0]["runtime"] == -1.0
    assert {"sample_id", "compiled", "correctness", "metadata", "runtime", "runtime_stats"} <= set(best)


def test_fast_p_goes_by_first_samples_and_all_problems_and_a_speed_of_exactly_p_is_not_above_it() -> None:
    rows = [
        row("1_A", 0, "correct", 2.5),
        row("2_B", 0, "correct", 1.0),
        row("3_C", 0, "incorrect"),
        row("4_D", 0, "inconclusive"),
    ]
    found = summary(eval_results(rows), problems=5)
    assert found["fast_p"] == {"0": 0.4, "1": 0.2, "2": 0.2}
    assert found["fast_p_of_the_fastest_baseline"] == {"0": 0.4, "1": 0.2, "2": 0.0}
    assert (found["with_samples"], found["inconclusive"], found["pass_at_k"]) == (4, 1, {"1": 0.4})


def test_without_times_nothing_is_said_about_speed() -> None:
    found = summary(eval_results([row("1_A", 0, "correct")]), problems=1)
    assert found["fast_p"] == {"0": 1.0, "1": None, "2": None}


def test_a_flag_that_is_settled_here_and_a_folder_without_levels_are_told_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench-model", str(tmp_path), "-o", str(tmp_path / "runs"), "--keep", "all"]) != 0
    assert "--keep is settled by bench-model" in capsys.readouterr().err
    assert main(["bench-model", str(tmp_path), "-o", str(tmp_path / "runs")]) != 0
    assert "has no folder level1" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_model_over_two_levels_is_graded_and_a_second_call_asks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "KernelBench").mkdir()
    problem(tmp_path / "KernelBench" / "level1", "Right", "Wrong")
    problem(tmp_path / "KernelBench" / "level2", "Prose")

    def answer(body: dict[str, Any]) -> str:
        text = body["messages"][-1]["content"]
        return WRONG if '"""Wrong"""' in text else PROSE if '"""Prose"""' in text else GOOD

    with FakeEndpoint(answer) as endpoint:
        line = ["bench-model", ".", "-o", "runs/fake", "--samples", "2", "--base-url", endpoint.base_url]
        line += ["--model", "fake", "--device", "cpu", "--workers", "1"]
        assert main(line) == 0
        asked = endpoint.asked.total()
        assert main(line) == 0
        assert endpoint.asked.total() == asked
    results = json.loads((tmp_path / "runs/fake/level1/eval_results.json").read_text())
    assert {key: [sample["correctness"] for sample in samples] for key, samples in results.items()} == {
        "1": [True, True],
        "2": [False, False],
    }
    report = json.loads((tmp_path / "runs/fake/results.json").read_text())
    assert report["levels"]["1"]["fast_p"] == {"0": 0.5, "1": None, "2": None}
    assert report["levels"]["2"]["correct"] == 0
    shown = capsys.readouterr().out
    assert "Nothing was timed" in shown
    assert "fast_0" in shown
    # Answers to a benchmark are no training data.
    rows = [json.loads(line) for line in (tmp_path / "runs/fake/level1/evals.jsonl").read_text().splitlines()]
    assert all(one["benchmark"] is True for one in rows)
    assert main(["publish", "runs/fake/level1/evals.jsonl", "--to", "folder:out"]) == 1
    assert "--allow-benchmark" in capsys.readouterr().err


def test_a_problem_without_an_answer_counts_and_a_line_separator_in_an_answer_ends_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "level1").mkdir()
    (tmp_path / "level2").mkdir()
    called = []

    def synthesize(line: list[str]) -> int:
        """Three problems, of which one was too long for the model."""
        called.append(line)
        if "--dry-run" in line:
            return 0
        file = Path(line[line.index("-o") + 1])
        file.parent.mkdir(parents=True)
        rows = [
            {**row(name, 0, "correct"), "writer": "fake", "said": "a\u2028b\x85c"} for name in ("1_A", "2_B")
        ]
        file.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in rows), encoding="utf-8")
        manifest = {"stage": "synthesize", "output": {"path": str(file)}, "rows": {"in": 3, "out": 2}}
        (file.parent / "evals.manifest.json").write_text(json.dumps(manifest))
        return 0

    monkeypatch.setattr("kernelmill.cli.main", synthesize)
    assert run_tool("bench-model", [".", "-o", "runs", "--dry-run"]) == 0
    assert len(called) == 2  # each level says what it would cost
    assert not (tmp_path / "runs").exists()
    assert run_tool("bench-model", [".", "-o", "runs", "--levels", "1"]) == 0
    found = json.loads((tmp_path / "runs/results.json").read_text())["levels"]["1"]
    assert (found["problems"], found["with_samples"], found["correct"]) == (3, 2, 2)
    assert found["fast_p"]["0"] == found["pass_at_k"]["1"] == 0.666667
