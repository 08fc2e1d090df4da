from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelmill.curate.strip import Strip
from kernelmill.rows import Row
from kernelmill.store import open_source
from tests.conftest import evals_row, read_rows, write_rows

CODE = "import triton\n\nclass NetNew:\n    pass"


def row(*messages: dict[str, Any]) -> dict[str, Any]:
    return evals_row(1, completion=[{"role": "assistant", **message} for message in messages])


def stripped(given: dict[str, Any], style: str = "answer") -> list[dict[str, Any]]:
    taken = Strip(style).take(Row(0, "x:1", json.dumps(given).encode()))
    assert isinstance(taken, bytes), taken
    out = json.loads(taken)
    assert list(out) == list(given)
    assert {key: value for key, value in out.items() if key != "completion"} == {
        key: value for key, value in given.items() if key != "completion"
    }
    return out["completion"]  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "message",
    [
        {"content": f"I think.\n<answer>\n{CODE}\n</answer>"},
        {"content": f"<answer>{CODE}</answer>", "reasoning": "long thoughts"},
        {"content": f"<answer>{CODE}</answer>", "reasoning_content": "long thoughts"},
        {"content": f"<think>hm</think>```python\n{CODE}\n```"},
        {"content": f"BEGIN_PYTHON\n{CODE}\nEND_PYTHON"},
    ],
)
def test_an_assistant_message_becomes_exactly_its_answer(message: dict[str, Any]) -> None:
    assert stripped(row(message)) == [{"role": "assistant", "content": f"<answer>{CODE}</answer>"}]


def test_every_assistant_message_is_stripped_and_no_other(tmp_path: Path) -> None:
    given = row({"content": f"first <answer>{CODE}</answer>"})
    given["completion"] += [
        {"role": "user", "content": "wrong"},
        {"role": "assistant", "content": f"so <answer>{CODE} </answer>"},
    ]
    assert [message["content"] for message in stripped(given)] == [
        f"<answer>{CODE}</answer>", "wrong", f"<answer>{CODE} </answer>",
    ]  # fmt: skip


def test_other_styles_are_written_too() -> None:
    given = row({"content": f"<think>why</think><answer>{CODE}</answer>"})
    assert stripped(given, "fence")[0]["content"] == f"```python\n{CODE}\n```"
    assert stripped(given, "begin_python")[0]["content"] == f"BEGIN_PYTHON\n{CODE}\nEND_PYTHON"
    kept = stripped(given, "reasoning_content")[0]
    assert (kept["content"], kept["reasoning_content"]) == (f"<answer>{CODE}</answer>", "why")


@pytest.mark.parametrize("style", ["answer", "fence", "begin_python", "reasoning_content"])
def test_stripping_twice_changes_nothing_on_any_bundled_row(style: str) -> None:
    stage = Strip(style)
    for given in open_source("bundled:samples/evals.jsonl").rows():
        once = stage.take(given)
        assert isinstance(once, bytes)
        assert stage.take(Row(0, "x", once)) == once


def test_rows_without_one_clear_answer_stop_the_command_unless_allowed(
    tmp_path: Path, mill: Callable[..., Any]
) -> None:
    rows = [
        row({"content": f"<answer>{CODE}</answer>"}),
        row({"content": "no code today"}),
        evals_row(3, completion=[]),
    ]
    write_rows(tmp_path / "rows.jsonl", rows)
    done = mill("strip", "rows.jsonl")
    assert done.returncode == 1
    assert "2 of 3 rows would be rejected" in done.stderr
    assert not (tmp_path / "rows-no-reasoning.jsonl").exists()
    assert mill("strip", "rows.jsonl", "--max-rejected", "0.7").returncode == 0
    assert len(read_rows(tmp_path / "rows-no-reasoning.jsonl")) == 1
    assert [bad["reason"] for bad in read_rows(tmp_path / "rows-no-reasoning.rejected.jsonl")] == [
        "assistant message 1: no answer block (<answer>, BEGIN_PYTHON or a code fence)",
        "no assistant message in the completion",
    ]
