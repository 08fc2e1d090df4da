from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmill.base.rows import Row
from kernelmill.curate.strip import Strip
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
    for sample in open_source("bundled:samples/evals.jsonl").rows():
        once = stage.take(sample)
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


@given(st.text(max_size=60), st.text(max_size=60), st.sampled_from(["answer", "fence", "begin_python"]))
def test_stripping_is_idempotent_on_any_answer(thoughts: str, code: str, style: str) -> None:
    stage = Strip(style)
    message = {"role": "assistant", "content": f"<think>{thoughts}</think>\n<answer>\n{code}\n</answer>"}
    once = stage.take(Row(0, "x", json.dumps(evals_row(0, completion=[message])).encode()))
    if isinstance(once, bytes):
        again = stage.take(Row(0, "x", once))
        # A code that holds marks of its own may have no clear answer once it is marked in another way.
        assert again == once if isinstance(again, bytes) else style != "answer"


def test_every_byte_outside_the_completion_stays(tmp_path: Path, mill: Callable[..., Any]) -> None:
    odd = '{ "b" : 1.50, "info":{"completion":[]},\t"completion" : %s , "z":"\\u00e9é","z":1e5 }'
    answer = '[{"role":"assistant","content":"x <answer>k</answer>"}]'
    (tmp_path / "rows.jsonl").write_text(odd % answer + "\n", encoding="utf-8")
    assert mill("strip", "rows.jsonl", "-o", "out.jsonl").returncode == 0
    kept = json.loads((tmp_path / "out.jsonl").read_bytes())
    assert kept["completion"][0]["content"] == "<answer>k</answer>"
    assert kept["info"] == {"completion": []}
    plain = odd.replace('"info":{"completion":[]},', "")
    (tmp_path / "rows.jsonl").write_text(plain % answer + "\n", encoding="utf-8")
    assert mill("strip", "rows.jsonl", "-o", "out.jsonl").returncode == 0
    stripped_answer = '[{"role":"assistant","content":"<answer>k</answer>"}]'
    assert (tmp_path / "out.jsonl").read_text(encoding="utf-8") == plain % stripped_answer + "\n"


def test_a_column_that_stands_twice_is_stripped_all_the_same() -> None:
    answer = b'[{"role":"assistant","content":"<think>t</think><answer>k</answer>"}]'
    raw = b'{"completion":%s,"completion":%s}' % (answer, answer)
    assert Strip("answer").take(Row(0, "x", raw)) == (
        b'{"completion":[{"role":"assistant","content":"<answer>k</answer>"}]}'
    )


def test_many_rows_in_processes_are_what_one_process_makes(tmp_path: Path, mill: Callable[..., Any]) -> None:
    rows = [evals_row(n, answer_bytes=9000) for n in range(900)]
    rows[700]["completion"] = []
    path = write_rows(tmp_path / "rows.jsonl", rows)
    lines = path.read_bytes().splitlines()
    lines[800] = b'{"torn'
    path.write_bytes(b"\n".join(lines))
    stage = Strip("answer")
    done = mill("strip", "rows.jsonl", "-o", "out.jsonl", "--max-rejected", "0.1")
    assert done.returncode == 1
    assert "rows.jsonl:801: " in done.stderr
    done = mill("strip", "rows.jsonl", "-o", "out.jsonl", "--max-rejected", "0.1", "--on-bad-row", "reject")
    assert done.returncode == 0, done.stderr
    expected = [stage.take(Row(0, "x", line)) for n, line in enumerate(lines) if n not in (700, 800)]
    assert (tmp_path / "out.jsonl").read_bytes().splitlines() == expected
    rejected = read_rows(tmp_path / "out.rejected.jsonl")
    assert [(bad["index"], bad["where"]) for bad in rejected] == [
        (700, "rows.jsonl:701"),
        (800, "rows.jsonl:801"),
    ]
    assert json.loads((tmp_path / "out.manifest.json").read_text())["styles_read"] == {"answer": 898}


WORDS = st.text(alphabet="abcdefgh \n", max_size=12)
PRIVATE = "zq7thought"
"""Stands in every thought, and nowhere else."""


@st.composite
def messages(draw: st.DrawFn, answered: bool) -> dict[str, Any]:
    """An assistant's message with thoughts in any of the places that there are."""
    thought = f"{draw(WORDS)} {PRIVATE} {draw(WORDS)}"
    places = draw(
        st.sets(
            st.sampled_from(
                ["reasoning", "reasoning_content", "thinking", "details", "blocks", "tag", "prose"]
            )
        )
    )
    kinds = ["<answer>\n{}\n</answer>", "```python\n{}\n```", "BEGIN_PYTHON\n{}\nEND_PYTHON"]
    content = draw(st.sampled_from(kinds)).format(CODE) if answered else ""
    if "prose" in places:
        content = f"{thought}\n\n{content}"
    if "tag" in places:
        closed = answered or draw(st.booleans())
        content = f"<think>{thought}{'</think>' if closed else ''}\n{content}"
    message: dict[str, Any] = {"role": "assistant", "content": content}
    message |= {name: thought for name in ("reasoning", "reasoning_content", "thinking") if name in places}
    if "details" in places:
        message["reasoning_details"] = [{"type": "reasoning.text", "text": thought}]
    if "blocks" in places:
        message["thinking_blocks"] = [{"thinking": thought}]
    return message


@given(st.data(), st.sampled_from(["answer", "fence", "begin_python"]))
def test_no_thought_of_any_row_survives_in_any_column(data: st.DataObject, style: str) -> None:
    answer = data.draw(messages(answered=True))
    earlier = data.draw(st.lists(messages(answered=data.draw(st.booleans())), max_size=3))
    turns: Any = [{"completion": one, "reward": 0.0, "verdict": {}} for one in [*earlier, answer]]
    if data.draw(st.booleans()):  # as publish writes it
        turns = json.dumps(turns)
    user = {"role": "user", "content": "an assistant writes kernels"}
    given_row = evals_row(1, prompt=[user, *earlier], completion=[answer]) | {
        "turns": turns,
        "ended": "correct",
    }
    once = Strip(style).take(Row(0, "x", json.dumps(given_row).encode()))
    assert isinstance(once, bytes)
    assert PRIVATE.encode() not in once
    out = json.loads(once)
    assert list(out) == list(given_row)
    assert out["prompt"][0] == user
    kept = json.loads(out["turns"]) if isinstance(turns, str) else out["turns"]
    assert [turn["reward"] for turn in kept] == [0.0] * (len(earlier) + 1)
    assert kept[-1]["completion"] == out["completion"][0]
    assert CODE in out["completion"][0]["content"]
    assert Strip(style).take(Row(0, "x", once)) == once


def test_a_turn_without_a_clear_answer_is_left_empty_and_the_row_stays() -> None:
    given_row = row({"content": f"<answer>{CODE}</answer>"})
    lost = {"role": "assistant", "content": "let me see", "reasoning": "hm"}
    given_row["turns"] = [{"completion": lost, "reward": 0.5}]
    taken = Strip("answer").take(Row(0, "x", json.dumps(given_row).encode()))
    assert isinstance(taken, bytes)
    assert json.loads(taken)["turns"] == [{"completion": {"role": "assistant", "content": ""}, "reward": 0.5}]
    kept = Strip("reasoning_content").take(Row(0, "x", json.dumps(given_row).encode()))
    assert isinstance(kept, bytes)
    assert json.loads(kept)["turns"][0]["completion"]["reasoning_content"] == "hm"


def test_a_column_in_which_no_assistant_speaks_keeps_its_bytes() -> None:
    raw = (
        b'{ "note" : "the assistant, 1.50", "odd":{"role":"user","x":1.50 , "assistant":1e5},'
        b'"completion":[{"role":"assistant","content":"<answer>k</answer>"}], "turns":3}'
    )
    assert Strip("answer").take(Row(0, "x", raw)) == raw
