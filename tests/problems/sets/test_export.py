"""Exports: the documented rows, in natural order, that verify; and a benchmark that stays out of training sets."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kernelmill.cli import main
from kernelmill.problems.sets.folder import SetRecord, write_set
from kernelmill.problems.sets.problem import Checked, Problem
from kernelmill.problems.sets.rl_rows import COLUMNS, EXTRA
from tests.conftest import read_rows, write_rows
from tests.problems.sets.sets import REFERENCE

NUMBERS = {1: (100, 2, 19, 1), 2: (3, 30, 20)}


def a_set(folder: Path, name: str = "kernelbench", benchmark: bool = True) -> Path:
    """An imported set, without the time that importing takes."""
    problems = [
        Problem(level, number, f"Name{number}_", REFERENCE.format(level=level, number=number), "here")
        for level, numbers in NUMBERS.items()
        for number in sorted(numbers)
    ]
    checked = [
        Checked(
            p.level,
            p.problem_id,
            p.name,
            p.file,
            p.sha256,
            False,
            None,
            "not run",
            {},
            p.problem_id != 19,
            [],
        )
        for p in problems
    ]
    codes = {problem.file: problem.code for problem in problems}
    write_set(folder, SetRecord(name, benchmark, {"path": "here"}, "1", checked, []), codes, [])
    return folder


def test_slime_rows_have_the_documented_keys_in_natural_order_and_verify(tmp_path: Path) -> None:
    a_set(tmp_path / "data/kernelbench")
    assert main(["problems", "export", "--format", "slime", "-o", "rl"]) == 0
    rows = read_rows(tmp_path / "rl/kernel_bench_triton_level_1.jsonl")
    assert [row["extra_info"]["problem_id"] for row in rows] == ["1", "2", "19", "100"]
    first = rows[0]
    assert tuple(first) == (*COLUMNS, "benchmark")
    assert tuple(first["extra_info"]) == EXTRA
    assert first["benchmark"] is True
    assert first["instance_id"] == "kernel_bench_triton_lv1_1"
    assert first["label"] == REFERENCE.format(level=1, number=1)
    assert first["label"].strip() in first["prompt"][1]["content"]
    assert [message["role"] for message in first["prompt"]] == ["system", "user"]
    line = (tmp_path / "rl/kernel_bench_triton_level_1.jsonl").read_text().splitlines()[0]
    assert line == json.dumps(first, ensure_ascii=False)
    assert main(["problems", "verify", "rl"]) == 0


def test_a_level_file_changed_after_the_export_is_found_although_the_merged_file_agrees(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a_set(tmp_path / "data/kernelbench")
    assert main(["problems", "export", "-o", "rl"]) == 0
    file = tmp_path / "rl/kernel_bench_triton_level_2.jsonl"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))
    assert main(["problems", "merge", "rl"]) == 0
    assert main(["problems", "verify", "rl"]) == 1
    assert "not as it was exported" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["trl", "verl", "prime", "verifiers"])
def test_other_trainers_get_their_own_columns(tmp_path: Path, kind: str) -> None:
    a_set(tmp_path / "data/kernelbench")
    assert main(["problems", "export", "--format", kind, "-o", "rl"]) == 0
    reference = REFERENCE.format(level=1, number=1)
    if kind == "verl":
        rows = pq.read_table(tmp_path / "rl/kernel_bench_triton_verl.parquet").to_pylist()
        assert list(rows[0]) == [
            "data_source",
            "prompt",
            "ability",
            "reward_model",
            "extra_info",
            "benchmark",
        ]
        assert rows[0]["reward_model"] == {"style": "rule", "ground_truth": reference}
        assert [row["extra_info"]["index"] for row in rows] == list(range(7))
    else:
        rows = read_rows(tmp_path / f"rl/kernel_bench_triton_{kind}.jsonl")
        assert rows[0]["label" if kind == "trl" else "answer"] == reference
    if kind in ("prime", "verifiers"):
        assert list(rows[0]) == ["example_id", "prompt", "answer", "info", "task", "benchmark"]
        assert rows[0]["info"]["problem_id"] == "1"
    assert all(row["benchmark"] is True for row in rows)
    assert all([message["role"] for message in row["prompt"]] == ["system", "user"] for row in rows)


def test_levels_admission_and_prompts_can_be_chosen(tmp_path: Path) -> None:
    a_set(tmp_path / "data/kernelbench")
    (tmp_path / "mine.md").write_text("Bitte: {{ code }} als {{ class_name }}")
    command = ["problems", "export", "-o", "rl", "--levels", "1", "--admitted", "--prompt", "mine.md"]
    assert main(command) == 0
    rows = read_rows(tmp_path / "rl/kernel_bench_triton_level_1.jsonl")
    assert [row["extra_info"]["problem_id"] for row in rows] == ["1", "2", "100"]
    assert rows[0]["prompt"][1]["content"].startswith("Bitte: import torch")
    assert not (tmp_path / "rl/kernel_bench_triton_level_2.jsonl").exists()
    assert main(["problems", "verify", "rl"]) == 0
    assert main(["problems", "export", "-o", "rl", "--levels", "9"]) == 2


def test_a_problem_changed_after_its_import_is_not_exported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = a_set(tmp_path / "data/kernelbench")
    file = folder / "level1/19_Name19_.py"
    file.write_text(file.read_text() + "\n# faster\n")
    assert main(["problems", "export"]) == 1
    assert "19_Name19_.py is not what was imported" in capsys.readouterr().err


def test_publish_refuses_a_benchmark_unless_told_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a_set(tmp_path / "data/kernelbench")
    for kind, name in (("slime", "all_levels"), ("trl", "trl")):
        assert main(["problems", "export", "-o", "rl", "--format", kind]) == 0
        if kind == "slime":
            name = "levels_1_2"
        source = f"rl/kernel_bench_triton_{name}.jsonl"
        assert main(["publish", source, "--to", "folder:out"]) == 1
        assert "--allow-benchmark" in capsys.readouterr().err
        assert not (tmp_path / "out").exists()
        assert main(["publish", source, "--to", f"folder:allowed-{kind}", "--allow-benchmark"]) == 0


def test_publish_knows_prompts_of_kernelbench_that_were_made_elsewhere(tmp_path: Path) -> None:
    a_set(tmp_path / "data/kernelbench")
    assert main(["problems", "export", "-o", "rl"]) == 0
    rows = read_rows(tmp_path / "rl/kernel_bench_triton_level_1.jsonl")
    for row in rows:
        del row["benchmark"]
    write_rows(tmp_path / "theirs.jsonl", rows)
    assert main(["publish", "theirs.jsonl", "--to", "folder:out"]) == 1


def test_a_set_that_is_no_benchmark_is_published_like_any_rows(tmp_path: Path) -> None:
    a_set(tmp_path / "data/own", "own", benchmark=False)
    assert main(["problems", "export", "data/own", "-o", "rl", "--format", "trl"]) == 0
    rows = read_rows(tmp_path / "rl/kernel_bench_triton_trl.jsonl")
    assert "benchmark" not in rows[0]
    assert rows[0]["data_source"] == "own_triton"
    assert main(["publish", "rl/kernel_bench_triton_trl.jsonl", "--to", "folder:out"]) == 0


def test_decontaminate_finds_an_imported_benchmark_by_its_name(tmp_path: Path) -> None:
    a_set(tmp_path / "data/kernelbench")
    held = REFERENCE.format(level=1, number=19).replace("Model", "Mine")
    other = "import torch\n\nclass A(torch.nn.Module):\n    def forward(self, x):\n        return torch.fft.fft(x).abs()\n"
    write_rows(tmp_path / "rows.jsonl", [{"python_code": held}, {"python_code": other}])
    assert main(["decontaminate", "rows.jsonl", "-o", "out.jsonl", "--against", "kernelbench"]) == 0
    found = [row["contaminated_kernelbench"] for row in read_rows(tmp_path / "out.jsonl")]
    assert found[0]["problem"] == "level1/19_Name19_"
    assert found[1] is None
    assert main(["decontaminate", "rows.jsonl", "-o", "out.jsonl", "--against", "nowhere"]) == 1
