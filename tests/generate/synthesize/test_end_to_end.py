"""The command with the real evaluator, against an endpoint on loopback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kernelmill.base.columns import FORMATS
from kernelmill.base.rows import EVALS_COLUMNS, EvalsRow
from kernelmill.cli import main
from kernelmill.evaluate.verdict import Verdict
from kernelmill.testing.fake_endpoint import FakeEndpoint
from tests.conftest import read_rows
from tests.generate.synthesize.answers import (
    GOOD,
    ORDER,
    PROSE,
    REFERENCE,
    WRONG,
    asked,
    manifest,
    problem,
    rows,
    synthesize,
)


@pytest.mark.slow
def test_a_row_has_the_columns_of_the_format_in_their_order_and_the_whole_verdict(tmp_path: Path) -> None:
    problem(tmp_path / "problems")

    def think(body: dict[str, Any]) -> dict[str, Any]:
        body["choices"][0]["message"]["reasoning_content"] = "First the masks."
        return body

    with FakeEndpoint(lambda _: GOOD, amend=think, latency=0.3) as endpoint:
        assert synthesize(endpoint.base_url, "--stats", "stats.json") == 0
    (row,) = rows()
    assert list(row)[: len(ORDER)] == ORDER
    assert set(ORDER) == set(EVALS_COLUMNS)
    assert set(row) <= {column.name for column in FORMATS["evals"]}
    msgspec.convert(row, EvalsRow, strict=True)
    assert [message["role"] for message in row["prompt"]] == ["system", "user"]
    assert REFERENCE in row["prompt"][1]["content"]
    assert row["completion"] == [{"role": "assistant", "content": GOOD, "reasoning": "First the masks."}]
    assert row["answer"].startswith("import torch")
    assert row["answer"] in GOOD
    assert (row["reward"], row["reward_name"], row["reward_masked"]) == (1.0, "correct", False)
    assert (row["speedup_reward"], row["num_turns"], row["oai_tools"]) == (0.0, 1.0, None)
    assert row["info"]["module_name"] == "ScaledShift"
    verdict = Verdict.from_dict(row["verdict"])
    assert (verdict.status, verdict.tier, verdict.rewards["speedup"]) == ("PASSED", "interpreter", None)
    assert row["generation_ms"] >= 300
    assert row["scoring_ms"] == pytest.approx(verdict.cost["wall_s"] * 1000, abs=0.1)
    assert row["total_ms"] == pytest.approx(row["generation_ms"] + row["scoring_ms"], abs=0.2)
    stats = json.loads(Path("stats.json").read_text())
    assert stats["pass_at_k"] == {"1": 1.0}
    assert stats["tokens_per_correct"] == row["tokens_in"] + row["tokens_out"]
    assert manifest()["statistics"] == stats
    assert set(manifest()["prompts"]) == {"synthesize.md", "synthesize_system.md", "synthesize_again.md"}


@pytest.mark.slow
def test_a_wrong_answer_is_told_why_and_every_turn_stays_with_its_verdict(tmp_path: Path) -> None:
    problem(tmp_path / "problems")

    def reply(body: dict[str, Any]) -> str:
        earlier = [message for message in body["messages"] if message["role"] == "assistant"]
        return (PROSE, WRONG, GOOD)[len(earlier)]

    with FakeEndpoint(reply) as endpoint:
        assert synthesize(endpoint.base_url, "--turns", 4) == 0
        calls = endpoint.asked.total()
        assert synthesize(endpoint.base_url, "--turns", 4, "--export", "last", output="last.jsonl") == 0
        assert synthesize(endpoint.base_url, "--turns", 4, "--export", "best", output="best.jsonl") == 0
        assert endpoint.asked.total() == calls == 3
    (row,) = rows()
    assert row["num_turns"] == 3.0
    assert [turn["verdict"]["verdict"] for turn in row["turns"]] == ["incorrect", "incorrect", "correct"]
    assert row["turns"][1]["verdict"]["status"] == "INCORRECT_NUMERICAL"
    assert [turn["reward"] for turn in row["turns"]] == [0.0, 0.0, 1.0]
    assert [turn["return"] for turn in row["turns"]] == pytest.approx([0.16, 0.4, 1.0])
    assert [message["role"] for message in row["completion"]] == ["assistant", "user"] * 2 + ["assistant"]
    assert row["turns"][1]["verdict"]["feedback"] in row["completion"][3]["content"]
    assert (row["reward"], row["verdict"]["status"]) == (1.0, "PASSED")
    (last,) = rows("last.jsonl")
    assert last["prompt"] == row["prompt"] + row["completion"][:-1]
    assert last["completion"] == row["completion"][-1:]
    (best,) = rows("best.jsonl")
    assert (best["prompt"], best["completion"]) == (row["prompt"], row["completion"][-1:])


@pytest.mark.slow
def test_whatever_a_model_says_becomes_a_row_with_the_right_verdict(tmp_path: Path) -> None:
    body = GOOD.split("<answer>")[1].split("</answer>")[0]
    cheat = body.replace(
        "        out = torch.empty_like(x)", "        return torch.relu(x * self.weight + shift)"
    )
    said = {
        "Prose": (PROSE, "incorrect"),
        "TwoAnswers": (f"{GOOD}\n\n{WRONG}", "incorrect"),
        "Cuda": ("<answer>\n__global__ void f(float *x) { x[0] = 1; }\n</answer>", "incorrect"),
        "Long": ("All work and no play. " * 9_500, "incorrect"),
        "LongCode": (GOOD.replace("</answer>", "# la la la\n" * 20_000 + "</answer>"), "incorrect"),
        "Unchanged": (f"<answer>\n{REFERENCE}\n</answer>", "incorrect"),
        "Renamed": (
            f"<answer>\n{REFERENCE.replace('ScaledShift', 'ScaledShiftNew')}\n</answer>",
            "incorrect",
        ),
        "Torch": (f"<answer>{cheat}</answer>", "hack"),
        "Exit": ("<answer>\nimport os\nos._exit(0)\n</answer>", "incorrect"),
        "Attack": (
            GOOD.replace("<answer>", "<answer>\nimport torch\ntorch.allclose = lambda *a, **k: True"),
            "hack",
        ),
        "Think": (f"<think>Hm, <answer>no</answer>.</think>\n{GOOD}", "correct"),
        "Endless": (f"<think>{GOOD}", "incorrect"),
    }
    problem(tmp_path / "problems", *said)

    def reply(body: dict[str, Any]) -> str:
        return next(text for name, (text, _) in said.items() if f'"""{name}"""' in asked(body))

    with FakeEndpoint(reply) as endpoint:
        assert synthesize(endpoint.base_url) == 0
    found = {row["problem_name"].split("_", 1)[1]: row for row in rows()}
    assert list(found) == list(said)
    for name, (_, verdict) in said.items():
        assert found[name]["verdict"]["verdict"] == verdict, (name, found[name]["verdict"])
    assert found["TwoAnswers"]["verdict"]["status"] == "FORMAT_ERROR"
    assert "different answers" in found["TwoAnswers"]["verdict"]["error"]
    assert found["Prose"]["answer"] == found["TwoAnswers"]["answer"] == ""
    assert found["Long"]["completion"][0]["content"] == said["Long"][0]
    (message,) = found["Think"]["completion"]
    assert message == {"role": "assistant", "content": GOOD, "reasoning": "Hm, <answer>no</answer>."}
    assert [row["reward"] for row in found.values() if row["verdict"]["verdict"] != "correct"] == [0.0] * 11


@pytest.mark.slow
def test_the_best_correct_one_of_each_problem_is_kept_and_rate_takes_it(tmp_path: Path) -> None:
    problem(tmp_path / "problems", "One", "Two")

    def reply(body: dict[str, Any]) -> str:
        if '"""Two"""' in asked(body):
            return PROSE
        seed: int = body["seed"]
        return [WRONG, GOOD, GOOD.replace("<answer>", "<answer>\n# the same again")][seed]

    with FakeEndpoint(reply) as endpoint:
        told = ("--rollouts", 3, "--sampling", "seed=0", "--keep", "fastest", "--stats", "stats.json")
        assert synthesize(endpoint.base_url, *told) == 0
    (row,) = rows()
    assert (row["rollout"], row["verdict"]["verdict"]) == (1, "correct")
    reasons = [rejected["reason"] for rejected in read_rows(Path("out.rejected.jsonl"))]
    assert len(reasons) == 5
    assert reasons[1].startswith("another candidate")
    stats = json.loads(Path("stats.json").read_text())
    assert stats["pass_at_k"] == pytest.approx({"1": 1 / 3, "2": 0.5, "3": 0.5}, abs=1e-6)
    assert (stats["problems"], stats["problems_solved"]) == (2, 1)
    assert main(["rate", "out.jsonl", "-o", "rated.jsonl", "--rater", "static", "--no-trace"]) == 0
    (rated,) = rows("rated.jsonl")
    assert {name: rated[name] for name in row} == row
