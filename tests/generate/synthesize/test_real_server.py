"""Against a server that is not ours: `transformers serve`, with a model that writes nonsense."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kernelmill.base.rows import EvalsRow
from kernelmill.cli import main
from kernelmill.evaluate.verdict import Verdict
from tests.generate.synthesize.answers import ORDER, manifest, problem, rows
from tests.generate.synthesize.real_server import RealServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with RealServer(tmp_path_factory.mktemp("real_server")) as running:
        yield running


def synthesize(server: RealServer, *more: object, output: str = "out.jsonl") -> int:
    words = ["synthesize", "--problems", "problems", "-o", output, "--base-url", server.base_url]
    told = ["--device", "cpu", "--sampling", "max_tokens=40", "--sampling", "temperature=1.0"]
    return main([*words, "--model", server.model, *told, *map(str, more)])


def check_turn(turn: dict[str, Any]) -> None:
    """A turn of nonsense: what is wrong with it is told, and what the server counted is there."""
    verdict = Verdict.from_dict(turn["verdict"])
    assert (verdict.verdict, turn["reward"]) == ("incorrect", 0.0)
    assert verdict.status in ("FORMAT_ERROR", "PARSE_ERROR")
    assert turn["tokens_in"] > 0
    if turn["finish_reason"] == "length":
        assert verdict.error == "the answer ended with finish_reason length, not stop"
        assert turn["tokens_out"] == 40
    else:
        assert turn["finish_reason"] == "stop"
        assert verdict.error
        assert 0 < turn["tokens_out"] <= 40
    assert verdict.feedback
    assert turn["generation_ms"] > 0


@pytest.mark.heavy
def test_nonsense_becomes_rows_that_say_what_is_wrong_and_nothing_is_asked_twice(
    server: RealServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problem(tmp_path / "problems", "One", "Two")
    told = ("--rollouts", 8, "--sampling", "seed=1", "--stats")
    before = server.calls()
    assert synthesize(server, *told) == 0
    assert server.calls() == before + 16
    found = rows()
    assert [(row["example_id"], row["rollout"]) for row in found] == [
        (n, r) for n in (0, 1) for r in range(8)
    ]
    for row in found:
        assert list(row)[: len(ORDER)] == ORDER
        msgspec.convert(row, EvalsRow, strict=True)
        (turn,) = row["turns"]
        check_turn(turn)
        assert row["completion"] == [turn["completion"]]
        assert (row["answer"], row["reward"], row["num_turns"]) == ("", 0.0, 1.0)
    # One answer in two ends by itself, so among sixteen there are some of both kinds.
    assert {row["finish_reason"] for row in found} == {"length", "stop"}
    assert len({row["completion"][0]["content"] for row in found}) > 8, "rollouts are samples, not copies"
    stats = json.loads(Path("out.stats.json").read_text(encoding="utf-8"))
    assert (stats["rollouts"], stats["pass_at_k"]["1"], stats["tokens_per_correct"]) == (16, 0.0, None)
    assert sum(stats["statuses"].values()) == 16
    assert stats["tokens"]["in"] == sum(row["tokens_in"] for row in found)
    assert (
        stats["tokens"]["out"] == sum(row["tokens_out"] for row in found) == manifest()["usage"]["tokens_out"]
    )
    shown = capsys.readouterr().out
    assert sum(failure["rollouts"] for failure in stats["failures"].values()) == 16
    for status, failure in stats["failures"].items():
        why = next(iter(failure["most_often"]))
        assert f"{failure['rollouts']:,}  {status} (most often: {why})" in shown

    first = Path("out.jsonl").read_bytes()
    assert synthesize(server, *told) == 0
    assert server.calls() == before + 16
    assert Path("out.jsonl").read_bytes() == first

    # The first turns are there already: only the second ones are asked for.
    assert synthesize(server, *told, "--turns", 2, output="turns.jsonl") == 0
    assert server.calls() == before + 32
    for row, earlier in zip(rows("turns.jsonl"), found, strict=True):
        one, two = row["turns"]
        assert one == earlier["turns"][0]
        check_turn(two)
        assert [message["role"] for message in row["completion"]] == ["assistant", "user", "assistant"]
        assert one["verdict"]["feedback"] in row["completion"][1]["content"]
        assert two["tokens_in"] > one["tokens_in"] + one["tokens_out"], "the server was told what was wrong"


@pytest.mark.heavy
def test_thoughts_that_the_server_puts_in_a_field_of_its_own_stand_in_ours(
    server: RealServer, tmp_path: Path
) -> None:
    problem(tmp_path / "problems")
    (tmp_path / "think.toml").write_text(
        "[sampling.extra_body]\nchat_template_kwargs = { enable_thinking = true }\n"
    )
    assert synthesize(server, "--rollouts", 4, "--sampling", "seed=1", "@", "think.toml") == 0
    for row in rows():
        (message,) = row["completion"]
        assert message["reasoning"].strip()
        assert row["verdict"]["verdict"] == "incorrect"


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ("[model]\nname = 'another'\n", "Server is pinned to"),
        ("[sampling.extra_body]\nnonsense = 1\n", "Unexpected fields in the request: {'nonsense'}"),
    ],
)
@pytest.mark.heavy
def test_what_the_server_will_not_take_is_told_in_its_own_words(
    server: RealServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], told: str, expected: str
) -> None:
    problem(tmp_path / "problems")
    (tmp_path / "odd.toml").write_text(told)
    words = [
        "synthesize",
        "--problems",
        "problems",
        "-o",
        "out.jsonl",
        "--base-url",
        server.base_url,
        "@",
        "odd.toml",
    ]
    model = () if "model" in told else ("--model", server.model)
    assert main([*words, *model, "--device", "cpu"]) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert expected in line
    assert "check --model and --sampling" in line
    assert not Path("out.jsonl").exists()
