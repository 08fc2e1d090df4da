from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmill.curate.difficulty import LEVELS, read_difficulty
from kernelmill.curate.rate import cohens_kappa
from kernelmill.curate.static_rater import rate_facts
from kernelmill.llm.engine import BadAnswer
from kernelmill.llm.prompts import Prompt
from kernelmill.problems.facts import TRACE_WORKER, ModuleFacts, module_facts
from kernelmill.problems.source import read_source
from kernelmill.sandbox import Sandbox
from tests.conftest import ROOT


@pytest.mark.parametrize(
    "text",
    [
        "It is easy.\n<difficulty>low</difficulty>",
        "<difficulty> Low </difficulty>",
        "<DIFFICULTY>\nLOW\n</DIFFICULTY>",
        "low",
        " Low. ",
        "**low**",
        "<think>maybe <difficulty>high</difficulty>?</think>\n<difficulty>low</difficulty>",
        "maybe <difficulty>high</difficulty>?</think>\n<difficulty>low</difficulty>",
        "<think>one <think> in thoughts</think>low",
        "<THINK>a</THINK><thinking>b</thinking>low",
        "<difficulty>low</difficulty> so again <difficulty>Low</difficulty>",
    ],
)
def test_a_level_is_read_whatever_its_case_and_blanks(text: str) -> None:
    assert read_difficulty(text) == "low"


@pytest.mark.parametrize(
    "text",
    [
        "I would call this low, all in all.",
        "[difficulty]low[/difficulty]",
        "<difficulty></difficulty>",
        "<difficulty>easy</difficulty>",
        "<difficulty>low or medium</difficulty>",
        "<difficulty>low, medium or high</difficulty>",
        "<difficulty>low</difficulty> <difficulty>high</difficulty>",
        "<difficulty>low",
        "",
        "<think><difficulty>low</difficulty></think>",
        "<difficulty>low</difficulty></think>",
        "<think>it is <difficulty>low</difficulty>",
        "<difficulty>low</difficulty> <think>or is it",
    ],
)
def test_anything_else_is_an_error_never_a_guess(text: str) -> None:
    with pytest.raises(BadAnswer):
        read_difficulty(text)


@given(st.text())
def test_any_answer_gives_a_level_or_a_bad_answer(text: str) -> None:
    try:
        assert read_difficulty(text) in LEVELS
    except BadAnswer as bad:
        assert str(bad)


def test_the_prompt_holds_the_whole_module_and_the_criteria() -> None:
    code = "x = 1\n" * 50_000
    prompt = Prompt("rate").render(module_name="Net", python_code=code)
    assert code.rstrip() in prompt
    for words in ("trivial copy or identity", "simple elementwise", "basic reductions", "standard matrix operations",
                  "fused operations", "complex attention", "full model architectures"):  # fmt: skip
        assert words in prompt


def module(init: str, forward: str) -> str:
    return f"""
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init or "pass"}
    def forward(self, x):
        {forward}

def get_inputs():
    return [torch.randn(8, 16)]
def get_init_inputs():
    return []
"""


CASES = [
    ("low", "", "return x"),
    ("low", "", "return x.t()"),
    ("low", "", "return torch.relu(x) * 2"),
    ("low", "", "return 0.5 * x * (1 + torch.tanh(0.79 * (x + 0.04 * x ** 3)))"),
    ("medium", "", "return x.sum(dim=1)"),
    ("medium", "", "return torch.softmax(x, -1)"),
    ("medium", "self.fc = nn.Linear(16, 4)", "return self.fc(x)"),
    ("medium", "", "return x @ x.t()"),
    ("medium", "self.n = nn.LayerNorm(16)", "return self.n(x) + x"),
    ("medium", "", "return F.mse_loss(x, x * 2)"),
    ("medium", "self.loss = nn.SmoothL1Loss()", "return self.loss(x, x * 2)"),
    ("high", "self.a = nn.Linear(16, 8); self.b = nn.Linear(8, 4)", "return self.b(torch.relu(self.a(x)))"),
    ("high", "self.fc = nn.Linear(16, 8)", "return torch.softmax(self.fc(x) * 2, -1)"),
    ("high", "", "return F.scaled_dot_product_attention(x, x, x)"),
    ("high", "self.r = nn.LSTM(16, 8)", "return self.r(x)[0]"),
    ("high", "", "return torch.softmax(x @ x.t(), -1) @ x"),
]


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(TRACE_WORKER) as server:
        yield server


@pytest.mark.parametrize(("level", "init", "forward"), CASES)
def test_the_criteria_hold_for_traced_modules_and_the_evidence_says_so(
    sandbox: Sandbox, level: str, init: str, forward: str
) -> None:
    facts = asyncio.run(module_facts(module(init, forward), "Model", sandbox))
    assert facts.trace is not None, facts.trace_error
    rating = rate_facts(facts)
    assert rating.difficulty == level, rating.evidence
    assert "traced on fake tensors" in rating.evidence


@pytest.mark.parametrize(("level", "init", "forward"), CASES)
def test_the_criteria_hold_without_torch_by_the_source_alone(level: str, init: str, forward: str) -> None:
    source = read_source(module(init, forward))
    rating = rate_facts(ModuleFacts(source, None, "torch is not installed"))
    assert rating.difficulty == level, rating.evidence
    assert "not traced (torch is not installed)" in rating.evidence


def test_bundled_problems_get_harder_by_level(sandbox: Sandbox) -> None:
    async def rate_all() -> dict[int, Counter[str]]:
        found: dict[int, Counter[str]] = {1: Counter(), 2: Counter(), 3: Counter()}
        for level, counts in found.items():
            for path in sorted((ROOT / f"data/problems/level{level}").glob("*.py")):
                counts[rate_facts(await module_facts(path.read_text(), "Model", sandbox)).difficulty] += 1
        return found

    by_level = asyncio.run(rate_all())
    assert by_level[1]["high"] == 0
    assert by_level[3] == {"high": 8}


def test_kappa_is_one_for_agreement_and_zero_for_chance() -> None:
    assert cohens_kappa(Counter({("low", "low"): 5, ("high", "high"): 5})) == pytest.approx(1.0)
    chance = Counter({("low", "low"): 4, ("low", "high"): 4, ("high", "low"): 4, ("high", "high"): 4})
    assert cohens_kappa(chance) == pytest.approx(0.0)
    assert cohens_kappa(Counter({("low", "low"): 3})) is None
    # A worked example: 20 agreed yes, 15 agreed no, 5 and 10 disagreed; kappa 0.4.
    table = Counter({("low", "low"): 20, ("low", "high"): 5, ("high", "low"): 10, ("high", "high"): 15})
    assert cohens_kappa(table) == pytest.approx(0.4)
