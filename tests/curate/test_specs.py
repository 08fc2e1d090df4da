from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kernelmill.curate.spec_checks import SECTIONS, check_spec, sections_of
from kernelmill.curate.spec_writer import write_spec
from kernelmill.isolate import Isolate
from kernelmill.llm.engine import BadAnswer
from kernelmill.problems.facts import ModuleFacts, module_facts
from kernelmill.prompts import Prompt
from kernelmill.rows import SyntheticRow
from kernelmill.testing.fake_endpoint import FakeEndpoint
from tests.conftest import ROOT, evals_row, read_rows, write_rows

CODE = """
import torch
import torch.nn as nn


class Gate(nn.Module):
    '''Mixes two inputs.'''

    def __init__(self, width, block_size=4):
        super().__init__()
        self.fc = nn.Linear(width, width)
        self.block_size = block_size

    def forward(self, x, mask):
        weights = torch.sigmoid(self.fc(x))
        return torch.where(mask, weights * x, x)


def get_inputs():
    return [torch.rand([2, 8]), torch.rand([2, 8]) > 0.5]


def get_init_inputs():
    return [[], {'width': 8}]
"""

GOOD = """## What is computed
The module `GateNew` blends x with a gated version of itself, chosen element by element by mask.

## Inputs
- x: tensor of shape (2, 8), dtype float32, values in [0, 1]
- mask: tensor of shape (2, 8), dtype bool

## Outputs
- output: tensor of shape (2, 8), dtype float32

## Module interface
The class is `GateNew`. `__init__` takes width and block_size (4 by default); forward takes x and mask.

## Behavioural requirements
Where mask holds, the sigmoid of the linear layer's output times x; elsewhere x itself. The block size has no effect.

## Language
Triton, called from PyTorch.

## Learnable parameters
- fc.weight (8, 8) and fc.bias (8,), initialised as in a PyTorch linear layer
"""


@pytest.fixture(scope="module")
def isolate() -> Iterator[Isolate]:
    with Isolate() as server:
        yield server


@pytest.fixture(scope="module")
def gate(isolate: Isolate) -> ModuleFacts:
    return asyncio.run(module_facts(CODE, "Gate", isolate))


def faults(text: str, facts: ModuleFacts) -> str:
    with pytest.raises(BadAnswer) as caught:
        check_spec(text, "GateNew", facts.source, facts.trace)
    return str(caught.value)


def test_a_good_specification_passes_as_it_is(gate: ModuleFacts) -> None:
    assert gate.trace is not None
    check_spec(GOOD, "GateNew", gate.source, gate.trace)
    assert list(sections_of(GOOD)) == list(SECTIONS)


@pytest.mark.parametrize("section", SECTIONS)
def test_every_section_must_be_there_and_have_text(gate: ModuleFacts, section: str) -> None:
    assert f"'## {section}' is missing" in faults(GOOD.replace(f"## {section}", "## Something else"), gate)
    body = sections_of(GOOD)[section]
    assert f"'## {section}' is empty" in faults(GOOD.replace(body, ""), gate)


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("GateNew", "Gate", "class name GateNew is missing"),
        ("width", "breadth", "__init__ parameter width is not named"),
        ("mask", "selector", "forward parameter mask is not named"),
        ("Triton", "CUDA", "does not say Triton"),
        ("elsewhere x itself.", "elsewhere x itself.\n```\nx\n```", "code fence"),
        ("elsewhere x itself.", "elsewhere x itself.\ndef forward(self, x, mask):", "line of code"),
        ("elsewhere x itself.", "elsewhere x.\nimport triton", "line of code"),
        ("elsewhere x itself.", "It is `torch.sigmoid(self.fc(x))` as in weights = torch.sigmoid( self.fc(x) ).", "copies a line"),
        ("elsewhere x itself.", "return torch.where(mask, weights*x, x)", "copies a line"),
        ("elsewhere x itself.", "Use a tile of 32 rows.", "hint about the implementation: tile"),
        ("elsewhere x itself.", "Choose BLOCK_M and num_warps well.", "hint about the implementation: BLOCK_M"),
        ("elsewhere x itself.", "Each thread block handles a row.", "hint about the implementation: thread block"),
        ("elsewhere x itself.", "Loads should be coalesced.", "hint about the implementation: coalesced"),
        ("elsewhere x itself.", "Use tl.load with a mask.", "hint about the implementation: tl.load"),
        ("- x: tensor of shape (2, 8)", "- x: tensor of shape (2, 16)", "the shape of x is (2, 8), not (2, 16)"),
        ("- x: tensor of shape (2, 8)", "- x: shape [2, 8, 1]", "the shape of x is (2, 8), not (2, 8, 1)"),
        ("- output: tensor of shape (2, 8)", "- a tensor of shape (8,)", "the shape is (2, 8), not (8,)"),
        ("dtype bool", "dtype int64", "the dtype of mask is bool, not int64"),
        ("- output: tensor of shape (2, 8), dtype float32", "- output: torch.float16", "the dtype of output is float32, not float16"),
    ],
)  # fmt: skip
def test_each_fault_is_found_and_named(gate: ModuleFacts, old: str, new: str, fault: str) -> None:
    assert fault in faults(GOOD.replace(old, new), gate)


def test_a_word_that_the_module_itself_uses_is_no_hint(gate: ModuleFacts) -> None:
    assert "block size" in GOOD.lower()
    check_spec(GOOD, "GateNew", gate.source, gate.trace)


def test_ranges_and_windows_are_not_taken_for_shapes(gate: ModuleFacts) -> None:
    text = GOOD.replace("values in [0, 1]", "a tensor with values in [0, 1]; tensor range (0, 3)")
    check_spec(text, "GateNew", gate.source, gate.trace)


def test_without_a_trace_only_the_shapes_go_unchecked(gate: ModuleFacts) -> None:
    check_spec(GOOD.replace("(2, 8)", "(2, 9)"), "GateNew", gate.source, None)


def test_the_prompt_asks_for_what_is_checked() -> None:
    prompt = Prompt("specs").render(module_name="Gate", python_code=CODE)
    headings = re.findall(r"^## (.*)$", prompt, re.MULTILINE)
    assert headings == list(SECTIONS)
    assert "`GateNew`" in prompt
    assert CODE.strip() in prompt


def test_the_static_writer_passes_its_own_checks_on_every_bundled_module(isolate: Isolate) -> None:
    paths = [*(ROOT / "data/problems").rglob("*.py"), *(ROOT / "data/samples/modules").rglob("module.py")]
    assert len(paths) == 70

    async def check_all() -> None:
        for path in paths:
            name = None if "problems" in path.parts else path.parent.name.split("_")[0]
            facts = await module_facts(path.read_text(), name, isolate)
            assert facts.trace is not None, f"{path}: {facts.trace_error}"
            class_name = f"{facts.source.entry_point}New"
            check_spec(
                write_spec(class_name, facts.source, facts.trace), class_name, facts.source, facts.trace
            )

    asyncio.run(check_all())


def test_the_static_specification_states_constants_and_the_flow_of_values(isolate: Isolate) -> None:
    code = """
import torch, torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        y = x.clamp(min=-1.5) * 2.5
        return (y + x).mean(dim=1)
def get_inputs():
    return [torch.rand(3, 4)]
def get_init_inputs():
    return []
"""
    facts = asyncio.run(module_facts(code, None, isolate))
    assert facts.trace is not None
    text = write_spec("ModelNew", facts.source, facts.trace)
    assert "with min -1.5; the result, [1]" in text
    assert "Multiply [1] by 2.5" in text
    assert "Add x to [2]" in text
    assert "Take the mean of [3], with dim (1)" in text
    assert "Returned: output, which is [4]." in text


def spec_for(body: dict[str, Any]) -> str:
    """A model that writes a good specification once it is told what was wrong."""
    prompt = body["messages"][0]["content"]
    n = re.search(r"class Scale(\d+)\(", prompt)[1]  # type: ignore[index]
    text = GOOD.replace("GateNew", f"Scale{n}New").replace("width and block_size (4 by default)", "factor")
    text = text.replace("x and mask", "x").replace("block size", "factor").replace("(2, 8)", "(4, 4)")
    text = "\n".join(line for line in text.splitlines() if not line.startswith("- mask"))
    return text if len(body["messages"]) == 3 else f"{text}\nUse num_warps=8."


def test_a_model_is_told_what_was_wrong_and_asked_again(tmp_path: Path, mill: Callable[..., Any]) -> None:
    write_rows(tmp_path / "rows.jsonl", [evals_row(n) for n in range(3)])
    with FakeEndpoint(reply=spec_for) as endpoint:
        line = ("specs", "rows.jsonl", "-o", "out/specs.jsonl", "--base-url", endpoint.base_url)
        done = mill(*line)
        assert done.returncode == 0, done.stderr
        assert endpoint.asked.total() == 6
        second = next(seen.body["messages"] for seen in endpoint.seen if len(seen.body["messages"]) == 3)
        assert "hint about the implementation: num_warps" in second[2]["content"]
        assert mill(*line).returncode == 0
        assert endpoint.asked.total() == 6
    rows = read_rows(tmp_path / "out/specs.jsonl")
    assert [list(row) for row in rows] == [
        ["prompt", "module_name", "python_code", "triton_code", "writer", "checked"]
    ] * 3
    assert [row["module_name"] for row in rows] == ["Scale0", "Scale1", "Scale2"]
    assert rows[0]["prompt"].startswith("## What is computed")
    assert rows[0]["checked"] == "all"


def test_a_specification_that_stays_wrong_is_rejected_with_all_that_was_said(
    tmp_path: Path, mill: Callable[..., Any]
) -> None:
    write_rows(tmp_path / "rows.jsonl", [evals_row(0)])
    with FakeEndpoint(reply=lambda _: "Here you go.") as endpoint:
        done = mill("specs", "rows.jsonl", "-o", "specs.jsonl", "--base-url", endpoint.base_url)
        assert done.returncode == 0
        assert endpoint.asked.total() == 3
    rejected = read_rows(tmp_path / "specs.rejected.jsonl")[0]
    assert rejected["attempts"] == ["Here you go."] * 3
    assert "'## Inputs' is missing" in rejected["reason"]


def test_a_module_that_does_not_parse_is_rejected_without_a_call(
    tmp_path: Path, mill: Callable[..., Any]
) -> None:
    row = {"entry_point": "Net", "python_code": "class Net(:\n", "uuid": 7}
    write_rows(tmp_path / "rows.jsonl", [row])
    with FakeEndpoint() as endpoint:
        done = mill("specs", "rows.jsonl", "-o", "specs.jsonl", "--base-url", endpoint.base_url)
        assert done.returncode == 0, done.stderr
        assert endpoint.asked.total() == 0
    assert "does not parse: line 1" in read_rows(tmp_path / "specs.rejected.jsonl")[0]["reason"]


def test_every_kind_of_source_gives_specifications(tmp_path: Path, mill: Callable[..., Any]) -> None:
    book = {
        "entry_point": "Gate",
        "module_name": "Gate",
        "python_code": CODE,
        "triton_code": "kernel",
        "uuid": 12,
        "stars": 3,
    }
    bench = {"code": CODE.replace("Gate", "Model"), "level": 1, "name": "1_Gate", "problem_id": 1}
    for name, row in {"book": book, "bench": bench, "evals": evals_row(1)}.items():
        write_rows(tmp_path / f"{name}.jsonl", [row])
    (tmp_path / "level2").mkdir()
    (tmp_path / "level2" / "3_Gate.py").write_text(CODE)
    for source in ("book.jsonl", "bench.jsonl", "evals.jsonl", "level2"):
        done = mill("specs", source, "-o", f"out/{source}.jsonl", "--writer", "static")
        assert done.returncode == 0, done.stderr
    rows = {
        path.name: read_rows(path)[0]
        for path in (tmp_path / "out").glob("*.jsonl")
        if "rejected" not in path.name
    }
    assert (rows["book.jsonl.jsonl"]["triton_code"], rows["book.jsonl.jsonl"]["uuid"]) == ("kernel", 12)
    assert rows["bench.jsonl.jsonl"]["module_name"] == "Model"
    assert (
        rows["level2.jsonl"]["module_name"],
        rows["level2.jsonl"]["level"],
        rows["level2.jsonl"]["problem_id"],
    ) == ("Gate", 2, 3)
    for row in rows.values():
        msgspec.json.decode(json.dumps(row), type=SyntheticRow)
        assert "Triton" in row["prompt"]


def test_the_static_writer_says_that_it_needs_a_trace(tmp_path: Path, mill: Callable[..., Any]) -> None:
    write_rows(tmp_path / "rows.jsonl", [evals_row(0)])
    done = mill("specs", "rows.jsonl", "-o", "specs.jsonl", "--writer", "static", "--no-trace")
    assert done.returncode == 2
    assert "leave --no-trace out" in done.stderr
