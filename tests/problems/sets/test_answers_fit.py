"""An answer that is marked as an exported prompt asks is found by the code of the trainer that the prompt is for.

verifiers is installed here, and its own parser is asked. For slime and verl the rule is written down again, in our words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kernelmill.base.answers import code_of
from kernelmill.base.task_rules import MARKS, PAYMENT, precision
from kernelmill.cli import main
from kernelmill.problems.sets.trainers import TRAINERS
from tests.conftest import ROOT, read_rows
from tests.problems.sets.test_export import a_set

KERNEL = (
    "import triton\n\n\n@triton.jit\ndef kernel(x):\n    pass\n\n\nclass ModelNew:\n    note = 'a < b > c'"
)


def tritonforge(completion: str) -> str | None:
    """TritonForge's reward for slime: without <think>…</think>, the last block between two fences, less the word `python`."""
    rest = re.sub(r"<think>.*?</think>", "", completion, flags=re.DOTALL)
    blocks = re.findall(r"```(.*?)```", rest, flags=re.DOTALL)
    return blocks[-1].strip().removeprefix("python").strip() if blocks else None


def verl_code(completion: str) -> str | None:
    """verl's rewards for code (`prime_code`, `sandbox_fusion`): from the last ```python to the next fence."""
    _, mark, rest = completion.rpartition("```python")
    return rest.partition("```")[0].strip() if mark else None


def xml_parser(completion: str) -> str | None:
    """The parser of verifiers, which environments of prime-rl use."""
    import verifiers.legacy as vf

    found: str | None = vf.XMLParser(["think", "answer"]).parse_answer(
        [{"role": "assistant", "content": completion}]
    )
    return found


READERS: dict[str, Callable[[str], str | None]] = {
    "slime": tritonforge,
    "trl": code_of,
    "verl": verl_code,
    "prime": xml_parser,
    "verifiers": xml_parser,
}


def obey(prompt: list[dict[str, str]]) -> str:
    """The completion of a model that does what each of the messages asks."""
    marks = {mark for mark, words in MARKS.items() for message in prompt if words in message["content"]}
    (mark,) = marks
    assert all(MARKS[mark] in message["content"] for message in prompt)
    code = f"<answer>\n{KERNEL}\n</answer>" if mark == "answer" else f"```python\n{KERNEL}\n```"
    return f"<think>\nA kernel.\n</think>\n\nOne program a row.\n\n{code}\n"


def exported(kind: str, *more: str) -> list[dict[str, Any]]:
    a_set(Path("data/kernelbench"))
    assert main(["problems", "export", "--format", kind, "-o", "rl", *more]) == 0
    if kind == "verl":
        rows: list[dict[str, Any]] = pq.read_table("rl/kernel_bench_triton_verl.parquet").to_pylist()
        return rows
    return read_rows(Path(f"rl/kernel_bench_triton_{'level_1' if kind == 'slime' else kind}.jsonl"))


@pytest.mark.parametrize("kind", TRAINERS)
def test_the_answer_that_a_prompt_asks_for_is_read_by_its_trainer_and_by_us(
    tmp_path: Path, kind: str
) -> None:
    for row in exported(kind):
        completion = obey(row["prompt"])
        assert READERS[kind](completion) == KERNEL
        assert code_of(completion) == KERNEL


def test_another_mark_can_be_asked_for(tmp_path: Path) -> None:
    assert "```python" in obey(exported("trl", "--answer", "fence")[0]["prompt"])
    assert "<answer>" in obey(exported("slime", "--answer", "answer")[0]["prompt"])


@pytest.mark.parametrize("kind", TRAINERS)
def test_prompts_state_the_rules_that_the_judge_has(tmp_path: Path, kind: str) -> None:
    """How to keep float32 precision, and what a wrong answer earns: tests/evaluate/score/test_task_rules.py holds the judge to it."""
    user = exported(kind)[0]["prompt"][1]["content"]
    assert precision(tf32=False) in user
    assert PAYMENT in user
    assert "earns nothing" not in user


def test_the_extractors_of_the_trainers_themselves_found_every_answer() -> None:
    """The restated rules above are what the trainers do: bench/extractors.py ran their own code on answers to exported prompts."""
    result = json.loads((ROOT / "bench/results/extractors.json").read_text(encoding="utf-8"))
    found = result["extractors"]
    assert {"tritonforge", "kernelbench", "verl", "ours, slime", "ours, verl"} == set(found)
    assert all(one["found"] == one["completions"] >= 150 for one in found.values())
    assert min(result["prompts"][kind] for kind in ("slime", "verl")) >= 30
    assert set(result["sources"]) == {"tritonforge", "kernelbench", "verl"}
    assert all(re.fullmatch("[0-9a-f]{40}", one["commit"]) for one in result["sources"].values())
