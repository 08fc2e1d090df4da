"""One text for each rule of a task: prompts, pages and the judge say the same.

That products without the argument are refused is held by test_probes.py, that with it they pass by the corpus, and the order of
what hacks, wrong and correct candidates earn by test_rewards.py, for every reward.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelmill.base.task_rules import IEEE, PAYMENT, STATELESS, WORK, rules
from kernelmill.evaluate.score.rewards import compute
from kernelmill.evaluate.score.words import KEEP_FLOAT32
from kernelmill.evaluate.verdict import Verdict
from kernelmill.llm.prompts import Prompt

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("name", ["rl", "synthesize"])
def test_a_prompt_says_how_to_keep_the_precision_that_the_judge_asks_for(name: str) -> None:
    values = dict.fromkeys(
        ("code", "python_code", "module_name", "class_name", "problem_name", "hardware", "answer"), "x"
    )
    text = Prompt(name).render(**values, **rules(tf32=False))
    assert IEEE in text
    assert WORK in text
    assert STATELESS in text
    assert "TF32, its default, is not allowed" in text
    assert IEEE in KEEP_FLOAT32
    assert IEEE in (ROOT / "docs/tolerance.md").read_text()


def test_no_prompt_promises_that_a_wrong_answer_earns_nothing_while_some_rewards_pay_for_it() -> None:
    paid = compute(Verdict("x", "INCORRECT_NUMERICAL", "interpreter"))
    assert {name for name, reward in paid.items() if reward} == {"default", "tritonforge"}
    for file in (ROOT / "prompts").glob("*.md"):
        assert "earns nothing" not in file.read_text(), file
    assert PAYMENT in (ROOT / "docs/rewards.md").read_text()


def test_a_rule_is_written_in_one_place_and_prompts_quote_it() -> None:
    for file in (ROOT / "prompts").glob("*.md"):
        text = file.read_text()
        assert "reshape and view" not in text, file
        assert "from one call to the next" not in text, file
