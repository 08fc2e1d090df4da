from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmill.base.answers import NoAnswer, _between, read_answer, split_thoughts
from kernelmill.store import open_source

CODE = "import triton\n\nclass NetNew:\n    pass"
OTHER = "import triton\n\nclass NetNew:\n    x = 1"


@pytest.mark.parametrize(
    ("text", "style", "thoughts"),
    [
        (f"Sure.\n<answer>\n{CODE}\n</answer>", "answer", ""),
        (f"<answer>{CODE}</answer> Done.", "answer", ""),
        (f"<answer>\n```python\n{CODE}\n```\n</answer>", "answer", ""),
        (f"BEGIN_PYTHON\n{CODE}\nEND_PYTHON", "begin_python", ""),
        (f"Here:\n```python\n{CODE}\n```\n", "fence", ""),
        (f"```\n{CODE}\n```", "fence", ""),
        (f"<think>hm <answer>{OTHER}</answer></think><answer>{CODE}</answer>", "answer", f"hm <answer>{OTHER}</answer>"),
        (f"so I thought</think>\n<answer>{CODE}</answer>", "answer", "so I thought"),
        (f"I put it into <answer> tags.\n<answer>{CODE}</answer>", "answer", ""),
        (f"Use <answer>your code</answer> as told.\n<answer>{CODE}</answer>", "answer", ""),
        (f"<answer>{CODE}</answer> again: <answer>\n{CODE}\n</answer>", "answer", ""),
        (f"```python\n{OTHER}\n```\nbut really\n<answer>{CODE}</answer>", "answer", ""),
    ],
)  # fmt: skip
def test_every_style_gives_the_code_and_nothing_else(text: str, style: str, thoughts: str) -> None:
    answer = read_answer(text)
    assert (answer.code.strip(), answer.style, answer.thoughts) == (CODE, style, thoughts)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("I cannot do that.", "no answer block"),
        ("", "no answer block"),
        (f"<answer>{CODE}", "never closed"),
        (f"<think>{CODE}", "never closed"),
        ("<answer> </answer>", "empty"),
        (f"<answer>{OTHER}</answer>\n<answer>{CODE}</answer>", "2 different answers"),
        (f"```python\n{OTHER}\n```\n```python\n{CODE}\n```", "2 different answers"),
        (f"<think><answer>{CODE}</answer></think> and that was it", "no answer block"),
    ],
)
def test_none_or_several_is_an_error_that_says_which(text: str, reason: str) -> None:
    with pytest.raises(NoAnswer, match=reason):
        read_answer(text)


@given(st.text(alphabet="<>/answerthink`BEGINPYO_ND \n", max_size=80))
def test_any_text_gives_an_answer_or_no_answer(text: str) -> None:
    try:
        assert read_answer(text).code.strip()
    except NoAnswer as error:
        assert str(error)


def test_every_bundled_row_has_one_clear_answer_and_it_is_the_rows_own() -> None:
    from kernelmill.base.rows import EvalsReader

    read = EvalsReader()
    rows = [read(row) for row in open_source("bundled:samples/evals.jsonl").rows()]
    assert len(rows) == 60
    for row in rows:
        content = row.completion[-1].content
        assert content is not None
        assert read_answer(content).code.strip() == str(row.answer).strip()


@given(
    st.lists(st.sampled_from(["<think>", "</think>", "<THINK>", "< /think >", "a", "\n", " ", "<thinking>"]))
)
def test_the_short_way_for_the_usual_tags_reads_what_the_long_way_reads(parts: list[str]) -> None:
    text = "<think>" + "".join(parts)
    # A blank before it, which belongs to the rest, is enough to make it go the long way.
    try:
        thoughts, rest = split_thoughts(text)
    except NoAnswer:
        with pytest.raises(NoAnswer):
            split_thoughts(" " + text)
    else:
        assert split_thoughts(" " + text) in ((thoughts, " " + rest), (thoughts, rest))


@given(st.lists(st.sampled_from(["<answer>", "</answer>", "x", "<answer", "\n"])))
def test_a_block_begins_at_the_last_opening_mark_before_its_closing_one(parts: list[str]) -> None:
    text = "".join(parts)
    expected = []
    for piece in text.split("</answer>")[:-1]:
        _, mark, block = piece.rpartition("<answer>")
        if mark:
            expected.append(block)
    assert _between(text, "<answer>", "</answer>") == expected


def test_an_answer_that_holds_its_own_closing_mark_is_not_cut_there() -> None:
    with pytest.raises(NoAnswer, match="more than one"):
        read_answer('<answer>import torch\nEND = "</answer>"\ny = 2</answer>')
