"""Answers in JSON: asked for by a schema, validated, and published as the same text."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelmill.curate.difficulty import Rating
from kernelmill.curate.specs.checks import clean_spec
from kernelmill.curate.specs.specification import SECTIONS, Specification, sections_of
from kernelmill.llm.client import Endpoint
from kernelmill.llm.engine import BadAnswer
from kernelmill.llm.structured import Structured
from kernelmill.settings.base import LLMSettings
from kernelmill.testing.fake_endpoint import FakeEndpoint, difficulty_for
from tests.conftest import evals_row, read_rows, write_rows

Mill = Callable[..., Any]
TEXT = """## What is computed

Every element of x is multiplied by a factor.

## Inputs

- x: tensor of shape (4, 4), dtype float32, values in [0, 1]

## Outputs

- output: tensor of shape (4, 4), dtype float32

## Module interface

The class is Scale0New. It takes a factor; forward takes x.

## Behavioural requirements

The input is left as it is.

## Language

Triton, called from PyTorch.

## Learnable parameters

None."""


def tensors(*named: tuple[str, str], shape: tuple[int, ...] = (4, 4)) -> dict[str, Any]:
    return {
        "tensors": [
            {"name": name, "shape": shape, "dtype": "float32", "meaning": meaning} for name, meaning in named
        ],
        "notes": "",
    }


def spec(number: str = "0", shape: tuple[int, ...] = (4, 4)) -> dict[str, Any]:
    return {
        "what_is_computed": "Every element of x is multiplied by a factor.",
        "inputs": tensors(("x", "values in [0, 1]"), shape=shape),
        "outputs": tensors(("output", "")),
        "module_interface": f"The class is Scale{number}New. It takes a factor; forward takes x.\n",
        "behavioural_requirements": "The input is left as it is.",
        "language": "Triton, called from PyTorch.",
        "learnable_parameters": tensors(),
    }


def good_spec(body: dict[str, Any]) -> str:
    number = re.search(r"class Scale(\d+)\(", body["messages"][0]["content"])[1]  # type: ignore[index]
    return json.dumps(spec(number))


def wrong_at_first(body: dict[str, Any]) -> str:
    return json.dumps(spec(shape=(4, 5))) if len(body["messages"]) == 1 else good_spec(body)


def ask(mill: Mill, endpoint: FakeEndpoint, *more: str, stage: str = "specs") -> Any:
    line = (stage, "rows.jsonl", "-o", "out.jsonl", "--base-url", endpoint.base_url, "--answers", "json")
    return mill(*line, *more)


def test_a_json_answer_is_published_as_the_same_text_and_asked_for_once(tmp_path: Path, mill: Mill) -> None:
    write_rows(tmp_path / "rows.jsonl", [evals_row(n) for n in range(3)])
    with FakeEndpoint(reply=good_spec) as endpoint:
        done = ask(mill, endpoint)
        assert done.returncode == 0, done.stderr
        assert ask(mill, endpoint).returncode == 0
        assert endpoint.asked.total() == 3
        sent = endpoint.seen[0].body
    assert sent["response_format"]["type"] == "json_schema"
    assert sent["response_format"]["json_schema"]["strict"] is True
    assert "one JSON object" in sent["messages"][0]["content"]
    rows = read_rows(tmp_path / "out.jsonl")
    assert rows[0]["prompt"] == TEXT
    assert [row["checked"] for row in rows] == ["all"] * 3
    manifest = json.loads((tmp_path / "out.manifest.json").read_text())
    assert list(manifest["prompts"]) == ["specs.md", "specs_again.md", "specs_json.md"]


def test_a_json_answer_passes_the_same_checks_as_text(tmp_path: Path, mill: Mill) -> None:
    write_rows(tmp_path / "rows.jsonl", [evals_row(0)])
    with FakeEndpoint(reply=wrong_at_first) as endpoint:
        assert ask(mill, endpoint).returncode == 0
        again = endpoint.seen[1].body["messages"]
    assert "Inputs: the shape of x is (4, 4), not (4, 5)" in again[2]["content"]
    assert json.loads(again[1]["content"])["inputs"]["tensors"][0]["shape"] == [4, 5]
    assert read_rows(tmp_path / "out.jsonl")[0]["prompt"] == TEXT


def test_an_endpoint_without_response_format_stops_the_run_and_is_not_asked_for_text(
    tmp_path: Path, mill: Mill
) -> None:
    write_rows(tmp_path / "rows.jsonl", [evals_row(n) for n in range(5)])
    with FakeEndpoint(reply=good_spec, script=["no-format"] * 50) as endpoint:
        done = ask(mill, endpoint, "--concurrency", "1")
        assert done.returncode == 1
        assert endpoint.behaved == {"no-format": 3}
    message = done.stderr.strip().splitlines()[-1]
    assert "'response_format' of type 'json_schema' is not supported" in message
    assert "use --answers text" in message
    assert not (tmp_path / "out.jsonl").exists()


def test_an_answer_that_is_not_json_is_asked_for_again(tmp_path: Path, mill: Mill) -> None:
    write_rows(tmp_path / "rows.jsonl", [evals_row(0)])
    with FakeEndpoint(reply=good_spec, script=["not-json"]) as endpoint:
        assert ask(mill, endpoint).returncode == 0
        feedback = endpoint.seen[1].body["messages"][2]["content"]
    assert "not the JSON object that was asked for" in feedback
    assert read_rows(tmp_path / "out.jsonl")[0]["prompt"] == TEXT


def test_an_endpoint_that_ignores_response_format_gets_its_rows_rejected(tmp_path: Path, mill: Mill) -> None:
    def prose(body: dict[str, Any]) -> dict[str, Any]:
        body["choices"][0]["message"]["content"] = TEXT
        return body

    write_rows(tmp_path / "rows.jsonl", [evals_row(0)])
    with FakeEndpoint(reply=good_spec, amend=prose) as endpoint:
        assert ask(mill, endpoint).returncode == 0
    rejected = read_rows(tmp_path / "out.rejected.jsonl")[0]
    assert rejected["attempts"] == [TEXT] * 3
    assert "not the JSON object that was asked for" in rejected["reason"]


def test_a_rating_in_json_gives_the_same_columns_as_one_in_text(tmp_path: Path, mill: Mill) -> None:
    write_rows(tmp_path / "rows.jsonl", [evals_row(n, reward=1.0) for n in range(4)])
    with FakeEndpoint() as endpoint:
        assert ask(mill, endpoint, stage="rate").returncode == 0
        asked = [seen.body["messages"][0]["content"] for seen in endpoint.seen]
    expected = sorted(
        f"Rated by its hash.\n\n<difficulty>{difficulty_for(text)}</difficulty>" for text in asked
    )
    rows = read_rows(tmp_path / "out.jsonl")
    assert sorted(row["evaluation_raw"] for row in rows) == expected
    assert all(f"<difficulty>{row['difficulty']}<" in row["evaluation_raw"] for row in rows)


def test_answers_in_text_and_in_json_do_not_answer_for_each_other(tmp_path: Path, mill: Mill) -> None:
    write_rows(tmp_path / "rows.jsonl", [evals_row(0, reward=1.0)])
    with FakeEndpoint() as endpoint:
        for answers, calls in (("text", 1), ("json", 2), ("text", 2), ("json", 2)):
            line = ("rate", "rows.jsonl", "-o", "out.jsonl", "--base-url", endpoint.base_url)
            assert mill(*line, "--answers", answers).returncode == 0
            assert endpoint.asked.total() == calls


def test_a_response_format_of_ones_own_and_json_answers_do_not_go_together(
    tmp_path: Path, mill: Mill
) -> None:
    config = (
        '[llm.sampling.extra_body]\nresponse_format = {type = "json_object"}\n[specs]\nanswers = "json"\n'
    )
    (tmp_path / "own.toml").write_text(config)
    write_rows(tmp_path / "rows.jsonl", [evals_row(0)])
    done = mill("specs", "rows.jsonl", "--config", "own.toml")
    assert done.returncode == 2
    assert "leave it out of sampling.extra_body" in done.stderr.strip().splitlines()[-1]


def test_requests_keep_their_bytes_because_their_hash_is_the_key_of_paid_answers() -> None:
    """A change of these values means that users pay again for answers that are in their journals."""
    endpoint = Endpoint(LLMSettings(base_url="http://127.0.0.1:1/v1", model="m"))
    messages = [{"role": "user", "content": "question"}]
    assert (
        endpoint.request(messages).body == b'{"model":"m","messages":[{"role":"user","content":"question"}]}'
    )
    for structured, digest in (
        (Structured("rate", Rating), "fcd18ae67c244c48b19bf43ff720696e886e68301a4c875e480197783cbc6990"),
        (
            Structured("specs", Specification),
            "fe6d1e1f92ceb57de6124154cf20d814fecc6cac725d3a2b1b5d1666c20fefe6",
        ),
    ):
        body = endpoint.request(messages, response_format=structured.response_format).body
        assert hashlib.sha256(body).hexdigest() == digest


def test_every_section_has_a_field_of_the_schema() -> None:
    schema = Structured("specs", Specification).response_format["json_schema"]["schema"]
    assert [name.replace("_", " ").capitalize() for name in schema["required"]] == list(SECTIONS)
    assert list(sections_of(TEXT)) == list(SECTIONS)


@pytest.mark.parametrize(
    "answer", [json.dumps(spec()), f"<think>of (3, 3)</think>{json.dumps(spec(), indent=1)}"]
)
def test_an_answer_is_read_whatever_its_blanks_and_thoughts(answer: str) -> None:
    assert Structured("specs", Specification).read(clean_spec(answer)).text() == TEXT


@pytest.mark.parametrize(
    "answer",
    ["", "[]", "null", TEXT, json.dumps(spec() | {"more": 1}), json.dumps({**spec(), "language": None}),
     json.dumps(spec(shape=("N", 4))), "[" * 100_000],  # type: ignore[arg-type]
)  # fmt: skip
def test_what_the_schema_does_not_allow_is_a_bad_answer(answer: str) -> None:
    with pytest.raises(BadAnswer, match="not the JSON object that was asked for"):
        Structured("specs", Specification).read(answer)


def test_a_section_without_text_is_reported_whatever_form_it_came_in() -> None:
    read = Structured("specs", Specification).read
    assert "## Outputs\n\n\n\n## Module" in read(json.dumps(spec() | {"outputs": tensors()})).text()
    assert "## Inputs\n\nNone.\n\n##" in read(json.dumps(spec() | {"inputs": tensors()})).text()
