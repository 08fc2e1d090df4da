"""In KernelBench's style every class is `Model`: wherever a name is shown or compared, it is the problem's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelmill.base.rows import Row
from kernelmill.benchmarks.kernelbench.results import eval_results
from kernelmill.curate.rate import Rate, RatingQuestions, Task
from kernelmill.curate.specs.stage import Specs
from kernelmill.generate.synthesize.problems import CandidateRequest, PromptBuilder, RolloutRow
from kernelmill.generate.synthesize.row_filter import SynthesizeStage
from kernelmill.generate.synthesize.settings import SynthesizeSettings
from kernelmill.problems.benchmark import Benchmark
from kernelmill.problems.open_set import open_problems
from kernelmill.publish.splits import plan_split
from kernelmill.settings.fields import RateSettings
from kernelmill.store import open_source
from tests.conftest import evals_row, read_rows, write_rows

Mill = Callable[..., Any]
CODE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return {body}

def get_inputs():
    return [torch.randn(4, 8)]

def get_init_inputs():
    return []
"""
BODIES = {
    "19_ReLU": "torch.relu(x)",
    "20_LeakyReLU": "torch.where(x > 0, x, x * 0.01 + x.sum() * 0)",
    "36_RMSNorm_": "x / torch.sqrt((x * x).mean(dim=1, keepdim=True) + 1e-5)",
}


def taught(n: int, name: str, **more: Any) -> dict[str, Any]:
    """A row as `synthesize` writes it of a problem file."""
    made = evals_row(n, 1.0, problem_name=name, problem_level=1, **more)
    made["info"] = {"module_name": "Model", "python_code": CODE.format(body=BODIES[name]), "triton_code": ""}
    return made


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "rows.jsonl", [taught(n, name) for n, name in enumerate(BODIES)])


def test_unique_by_name_keeps_a_row_of_each_problem_and_names_what_it_keeps(rows: Path, mill: Mill) -> None:
    write_rows(rows, [*read_rows(rows), taught(9, "19_ReLU")])
    assert mill("unique", rows, "--by", "name", "-o", "out.jsonl").returncode == 0
    assert [row["problem_name"] for row in read_rows(Path("out.jsonl"))] == list(BODIES)
    (rejected,) = read_rows(Path("out.rejected.jsonl"))
    assert "rows.jsonl:1 (19_ReLU, reward 1)" in rejected["reason"]


def test_show_lengths_and_the_card_call_a_row_by_its_problem(rows: Path, mill: Mill) -> None:
    assert "─ 20_LeakyReLU, rows.jsonl:2 ─" in mill("show", "rows.jsonl", "--from", 1, "-n", 1).stdout
    report = mill("lengths", rows, "--tokenizer", "qwen-embedded", "--json", "lengths.json")
    assert report.returncode == 0, report.stderr
    longest = json.loads(Path("lengths.json").read_text())["longest_rows"]
    assert {row["name"] for row in longest} == set(BODIES)
    assert mill("publish", rows, "--to", "folder:out", "--split", "none").returncode == 0
    assert "3 rows, 3 module names" in Path("out/README.md").read_text()


def test_a_specification_keeps_the_name_of_its_problem(rows: Path, mill: Mill) -> None:
    done = mill("specs", rows, "--writer", "static", "-o", "specs.jsonl")
    assert done.returncode == 0, done.stderr
    made = read_rows(Path("specs.jsonl"))
    assert [(row["name"], row["level"], row["module_name"]) for row in made] == [
        (name, 1, "Model") for name in BODIES
    ]


def test_the_leakage_report_and_a_benchmark_made_of_such_rows_call_them_by_their_problems(rows: Path) -> None:
    long = " + ".join(
        f"torch.{name}(x)"
        for name in ["relu", "sigmoid", "tanh", "exp", "log", "sqrt", "abs", "sin", "cos", "erf"]
    )
    both = [taught(n, "19_ReLU") for n in range(2)]
    both[1]["problem_name"] = "7_Other"
    for row, body in zip(both, (long, f"{long} + torch.floor(x)"), strict=True):
        row["info"]["python_code"] = CODE.format(body=body)
    write_rows(rows, both)
    seeds = (plan_split(open_source(str(rows)), "groups", 0.5, seed, 1.0) for seed in range(50))
    found = next(split.leakage["nearest"] for split in seeds if split.leakage["nearest"])
    assert {found[0]["validation"], found[0]["train"]} == {"rows.jsonl:1 (19_ReLU)", "rows.jsonl:2 (7_Other)"}
    labels = Benchmark("b", open_problems(f"b={rows}", None)[1], 0.5).labels
    assert [label.partition("_")[2] for label in labels] == ["19_ReLU", "7_Other"]


@pytest.mark.parametrize("column", ["name", "problem_name"])
def test_a_model_is_told_the_problem_and_asked_for_the_class(column: str) -> None:
    raw = {"python_code": CODE.format(body="torch.relu(x)"), column: "19_ReLU"}
    asked = PromptBuilder(SynthesizeSettings()).take(RolloutRow(*_row(raw)))
    assert isinstance(asked, CandidateRequest)
    text = asked.messages[-1]["content"]
    assert "Now your module, `19_ReLU`" in text
    assert "Name the new class `ModelNew`" in text


def _row(values: dict[str, Any]) -> tuple[int, str, bytes]:
    row = Row(0, "x:1", json.dumps(values).encode())
    return row.index, row.where, row.raw


def _keeping() -> SynthesizeStage:
    settings = SynthesizeSettings()
    # Names need neither the rollouts nor the rows that are made of them.
    return SynthesizeStage(settings, PromptBuilder(settings), None, lambda problem, state: b"")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "stage", [Rate(0.5), Specs(None), _keeping()], ids=lambda stage: type(stage).__name__
)
@pytest.mark.parametrize(("columns", "shown"), [({"problem_name": "19_ReLU"}, "19_ReLU"), ({}, "Model")])
def test_what_is_being_worked_on_is_shown_by_the_name_of_its_problem(
    stage: Any, columns: dict[str, str], shown: str
) -> None:
    row = {**taught(0, "19_ReLU"), **columns}
    if not columns:
        del row["problem_name"]
    assert stage.name(stage.take(RolloutRow(*_row(row)))) == shown
    row["info"] = json.dumps(row["info"])
    assert stage.name(stage.take(RolloutRow(*_row(row)))) == shown


def test_a_template_for_rating_can_name_the_problem(tmp_path: Path) -> None:
    (tmp_path / "mine.md").write_text(
        "How hard is {{ problem_name }}, a {{ module_name }}? {{ python_code }}"
    )
    task = Rate(0.5).take(Row(*_row(taught(0, "19_ReLU"))))
    assert isinstance(task, Task)
    (asked,) = RatingQuestions(RateSettings(prompt=tmp_path / "mine.md")).messages(task)
    assert asked["content"].startswith("How hard is 19_ReLU, a Model?")


@pytest.mark.parametrize(("name", "number"), [("19_ReLU", "19"), (None, "Model")])
def test_the_results_of_a_benchmark_are_by_the_problem_also_where_its_column_is_empty(
    name: str | None, number: str
) -> None:
    row = taught(0, "19_ReLU", rollout=0, verdict={"verdict": "wrong", "status": "WRONG", "tier": "cpu"})
    assert list(eval_results([row | {"problem_name": name}])) == [number]
