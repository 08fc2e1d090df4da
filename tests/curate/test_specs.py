from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kernelmill.base.rows import SyntheticRow
from kernelmill.curate.specs.checks import check_spec, clean_spec
from kernelmill.curate.specs.specification import SECTIONS, sections_of
from kernelmill.curate.specs.writer import write_spec
from kernelmill.llm.engine import BadAnswer
from kernelmill.llm.prompts import Prompt
from kernelmill.problems.facts import TRACE_WORKER, ModuleFacts, TensorFact, module_facts
from kernelmill.sandbox import Sandbox
from kernelmill.testing.fake_endpoint import FakeEndpoint
from tests.conftest import ROOT, evals_row, read_rows, write_rows
from tests.cost import calls_of, growth

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
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(TRACE_WORKER) as server:
        yield server


@pytest.fixture(scope="module")
def gate(sandbox: Sandbox) -> ModuleFacts:
    return asyncio.run(module_facts(CODE, "Gate", sandbox))


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


X = "- x: tensor of shape (2, 8), dtype float32, values in [0, 1]"
MASK = "- mask: tensor of shape (2, 8), dtype bool"
OUTPUT = "- output: tensor of shape (2, 8), dtype float32"
HERE = "elsewhere x itself."
"""Where a sentence is put into the good specification."""


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        (X, "- `x`: (9, 9), float32", "the shape of x is (2, 8), not (9, 9)"),
        (X, "| x | (9, 9) | float32 |", "the shape of x is (2, 8), not (9, 9)"),
        (X, "- x is a 9x9 float32 tensor", "the shape of x is (2, 8), not (9, 9)"),
        (X, "- x of shape 9 × 9, float32", "the shape of x is (2, 8), not (9, 9)"),
        (X, "- x of shape $9 \\times 9$, float32", "the shape of x is (2, 8), not (9, 9)"),
        (X, "- x: 9 by 9, float32", "the shape of x is (2, 8), not (9, 9)"),
        (X, "- x: torch.Size([9, 9]), float32", "the shape of x is (2, 8), not (9, 9)"),
        (X, "- x: tensor in float32 of shape (9, 9)", "the shape of x is (2, 8), not (9, 9)"),
        (X, "- x: tensor in float32 of shape (8, 9)", "the shape of x is (2, 8), not (8, 9)"),
        (X, "- x: float32[9, 9]", "the shape of x is (2, 8), not (9, 9)"),
        (X, "- x, float32, with shape: 9, 9", "the shape of x is (2, 8), not (9, 9)"),
        (X, "- x: shape (N, 9), float32", "the shape of x is (2, 8), not (_, 9)"),
        (X, "- x: shape (N, 9), float32", "the shape of x, (2, 8), is not stated"),
        (X, "- x: shape (*, 9), float32", "not (..., 9)"),
        (X, "- x: (**9**, **9**), float32", "the shape of x is (2, 8), not (9, 9)"),
        (X, "- x: (9, 9), also (2, 8), float32", "not (9, 9)"),
        (X, "- x: shape (), float32", "the shape of x is (2, 8), not ()"),
        (X, "- x: a scalar, float32", "the shape of x, (2, 8), is not stated"),
        (X, "- x: shape (N, 8), float32", "the shape of x, (2, 8), is not stated"),
        (X, "- x: a float32 tensor", "the shape of x, (2, 8), is not stated"),
        (X, "- the first one: (2, 8), float32", "Inputs: x is not named"),
        (X, "- `x`\n  - Shape: (9, 9)\n  - Dtype: float32", "the shape of x is (2, 8), not (9, 9)"),
        (X, "### x\nShape (9, 9), float32\n", "the shape of x is (2, 8), not (9, 9)"),
        (OUTPUT, "- output: float32", "the shape of output, (2, 8), is not stated"),
        (OUTPUT, "A tensor like x, of dtype float32.", "the shape of output, (2, 8), is not stated"),
        (OUTPUT, f"{OUTPUT}\n\n## Inputs\n- x: (9, 9)\n- mask: (9, 9)", "'## Inputs' is there 2 times"),
        (OUTPUT, f"{OUTPUT}\n\n**Outputs**\n- output: (9, 9)", "'## Outputs' is there 2 times"),
        (X, "- x: (2, 8), fp16", "the dtype of x is float32, not float16"),
        (X, "- x: (2, 8), half", "the dtype of x is float32, not float16"),
        (X, "- x: (2, 8), torch.half", "the dtype of x is float32, not float16"),
        (X, "- x: (2, 8), dtype double", "the dtype of x is float32, not float64"),
        (X, "- x: (2, 8), in double precision", "the dtype of x is float32, not float64"),
        (X, "- x: a (2, 8) long tensor", "the dtype of x is float32, not int64"),
        (X, "- x: (2, 8), dtype: int", "the dtype of x is float32, not int32"),
        (X, "- x: (2, 8), 16-bit floats", "the dtype of x is float32, not bfloat16"),
        (X, "- x: (2, 8), BF16", "the dtype of x is float32, not bfloat16"),
        (MASK, "- mask: (2, 8)", "the dtype bool is not stated"),
        (MASK, "- mask: (2, 8), not bool", "the dtype bool is not stated"),
        ("## What", "Sure! Here is the specification:\n\n## What", "text before the first section: Sure!"),
        ("## What", "# Task\nSure, here it is.\n\n## What", "text before the first section: Sure"),
        ("blends x", "blends x.\n\nSure! It blends x", "speaks to the reader: Sure!"),
        ("PyTorch linear layer", "linear layer\n\nLet me know if you need more!", "speaks to the reader: Let me know"),
        ("PyTorch linear layer", "linear layer\n\n---\nI hope this helps.", "speaks to the reader: I hope"),
        (HERE, "return torch.clamp(z, min=0.0).sum(dim=1)", "code in it"),
        (HERE, "It is\nreturn clamp(z) for all z.", "code in it: return clamp(z)"),
        (HERE, "It is `(x * scale).clamp(0).sum(1)`.", "code in it: ).clamp(0)"),
        (HERE, "It is x.clamp(0).", "code in it: x.clamp(0)"),
        (HERE, "It is `torch.relu(x)`.", "code in it: torch.relu(x)"),
        (HERE, "Then self.width = 3.", "code in it: self.width"),
        (HERE, "<pre><code>x</code></pre>", "code fence: <pre>"),
        (HERE, "&lt;code&gt;x&lt;/code&gt;", "code fence: <code>"),
        (HERE, "\n\uff40\uff40\uff40\nx\n\uff40\uff40\uff40\n", "code fence"),
        (HERE, "It is torch.sig\u200bmoid(self.\u200bfc(x)).", "copies a line"),
        (HERE, "The weights are torch . sigmoid(self . fc(x)).", "copies a line"),
        (HERE, "\nif x.sum() > 0:\n", "line of code: if x.sum() > 0:"),
        (HERE, "\nfor i in range(3):\n", "line of code: for i in range(3):"),
        (HERE, "\nimport torch.nn as nn\n", "line of code: import torch.nn"),
        *(
            (HERE, sentence, f"hint about the implementation: {hint}")
            for sentence, hint in [
                ("Use chunks of 64 columns.", "chunks of 64"),
                ("Process 1024 elements per program.", "per program"),
                ("Each program instance handles one row.", "Each program"),
                ("Launch one kernel per row.", "Launch one"),
                ("It maps well to tensor cores.", "tensor cores"),
                ("Keep the accumulator in registers.", "in registers"),
                ("Mask out-of-bounds loads.", "Mask out-of-bounds loads"),
                ("Fuse the sigmoid and the product into a single kernel.", "Fuse the sigmoid"),
                ("A persistent kernel is best.", "persistent kernel"),
                ("Swizzle the rows for the L2 cache.", "Swizzle"),
                ("Mind the L2 cache.", "L2 cache"),
                ("Prefer split-K.", "split-K"),
                ("Choose num\u200b_war\u00adps well.", "num_warps"),
                ("Choose num\\_warps well.", "num_warps"),
                ("Use \uff34\uff29\uff2c\uff25s of rows.", "TILEs"),
                ("Four warps per row.", "warps"),
            ]
        ),
    ],
)  # fmt: skip
def test_what_an_attacker_would_write_is_refused(gate: ModuleFacts, old: str, new: str, fault: str) -> None:
    assert old in GOOD
    assert fault in faults(GOOD.replace(old, new, 1), gate)


@pytest.mark.parametrize(
    "sentence",
    ["Use blocks of 128 elements.", "Block dimension 128.", "Use a block size of 64.", "The rows are tiled."],
)
def test_blocks_and_tiles_are_hints_where_the_module_has_none(sandbox: Sandbox, sentence: str) -> None:
    facts = asyncio.run(module_facts(CODE.replace("block_size", "depth"), "Gate", sandbox))
    text = GOOD.replace("block_size", "depth").replace("block size", "depth")
    check_spec(text, "GateNew", facts.source, facts.trace)
    assert "hint about the implementation" in faults(text.replace(HERE, sentence), facts)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (X, "- x: tensor of shape (2, 8), float32 (not float64)"),
        (X, "- x: (2, 8), float32 instead of float16, there is no bool mask in it"),
        (X, "- `x`: float32, torch.Size([2, 8]), that is 2 × 8 and not (8, 2)"),
        (X, "- `x`\n  - **Shape:** `(2, 8)`\n  - **Dtype:** `torch.float32`\n  - **Range:** [0, 1)"),
        (X, "### x\nA float tensor, (N, 8) with N = 2, so (2, 8).\n\n### mask"),
        (X, "- x: single precision, (batch=2, features=8); 2 rows, each a vector of 8; a half-open range [0, 5)"),
        (X, "- x: shape (*, 8), here (2, 8); indices in [0, 7] or integers from (0, 9); a long row, half of it zero; float"),
        (X, "- x: (2, 8), float32, clamp(0, 6) of noise drawn from N(0, 1), reduced over axes (0, 1)"),
        (MASK, "- mask: boolean tensor of the shape of x, [2, 8]"),
        (f"{X}\n{MASK}", "x is float32, mask is bool. \n\nBoth have the shape (2, 8)."),
        (f"{X}\n{MASK}", "| Name | Shape | Dtype |\n|---|---|---|\n| x | (2, 8) | float32 |\n| mask | (2, 8) | bool |"),
        (OUTPUT, "A float32 tensor of shape (2, 8), like x; with a 3x3 window it would differ."),
        (HERE, "The scale and the shift are each a vector of size (8)."),
        (HERE, "It warps the image."),
        (HERE, "The block sizes do not matter; the block size 2 is as in space to depth."),
        (HERE, "\nfor every element the following holds:\n"),
        (HERE, "\nif the mask is false, as follows:\n"),
        (HERE, "\nwith scale s the result is:\n"),
        (HERE, "\nwith bias:\n"),
        (HERE, "\n`y = max(0, s·x)`\ny = max(0, s * x)\nσ(z) = 1 / (1 + exp(-z))\n"),
        (HERE, "\nimport nothing else than what is needed:\n"),
        (HERE, "Out-of-bounds positions count as zero. Here width = 8. It returns f(x) (see above)."),
        ("fc.weight (8, 8)", "fc.weight(8, 8), whose index i can be any,"),
        ("## Behavioural", "## Behavioral"),
        ("## Inputs", "**Inputs**"),
        ("## Inputs", "**2. Inputs:**"),
        ("## Inputs", "2. **Inputs**"),
        ("## Inputs", "Inputs\n------"),
        ("## Inputs", "Inputs\n======"),
        ("## What is computed", "1. What is computed"),
        ("## What is computed", "# Task: GateNew\n\n---\n\n## 1. What is computed"),
        ("Triton, called", "The kernels are Triton kernels, launched from forward and called"),
    ],
)  # fmt: skip
def test_what_an_honest_writer_would_write_passes(gate: ModuleFacts, old: str, new: str) -> None:
    assert old in GOOD
    text = GOOD.replace(old, new, 1)
    if "### mask" in new:
        text = text.replace(MASK, "(2, 8), bool")
    check_spec(text, "GateNew", gate.source, gate.trace)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("grid = x.new_zeros(1)", "The grid size is one."),
        ("x = x.repeat(1, 1)", "The rows are repeated (tiled)."),
        ("x = x.expand(2, 8)", "The rows are tiled."),
        (
            "x = torch.pixel_shuffle(x[None, None], 1)[0, 0]",
            "It has a block size of 1, as in space to depth.",
        ),
        ("a, b = x.chunk(2)", "It is split into chunks of 1 row."),
    ],
)
def test_a_word_for_what_the_module_does_is_no_hint(sandbox: Sandbox, line: str, sentence: str) -> None:
    code = CODE.replace("block_size", "depth").replace("        weights", f"        {line}\n        weights")
    facts = asyncio.run(module_facts(code, "Gate", sandbox))
    text = GOOD.replace("block_size", "depth").replace("block size", "depth").replace(HERE, sentence)
    check_spec(text, "GateNew", facts.source, facts.trace)


def test_a_parameter_that_is_called_underscore_need_not_be_named(sandbox: Sandbox) -> None:
    code = CODE.replace("def forward(self, x, mask)", "def forward(self, x, mask, _=None)")
    facts = asyncio.run(module_facts(code, "Gate", sandbox))
    check_spec(GOOD, "GateNew", facts.source, facts.trace)


def traced(facts: ModuleFacts, **changes: Any) -> ModuleFacts:
    """The facts of a module that would take or return other tensors."""
    assert facts.trace is not None
    return msgspec.structs.replace(facts, trace=msgspec.structs.replace(facts.trace, **changes))


@pytest.mark.parametrize("said", ["shape ()", "a scalar", "torch.Size([])", "a zero-dimensional tensor"])
def test_a_tensor_without_dimensions_is_a_scalar_by_any_name(gate: ModuleFacts, said: str) -> None:
    facts = traced(gate, outputs=[TensorFact("output", [], "float32")])
    check_spec(GOOD.replace(OUTPUT, f"- loss: {said}, float32"), "GateNew", facts.source, facts.trace)
    assert "the shape of output, (), is not stated" in faults(GOOD.replace(OUTPUT, "- loss: float32"), facts)
    assert "the shape is (), not (1,)" in faults(
        GOOD.replace(OUTPUT, f"- loss: {said}, float32, (1,)"), facts
    )


def test_several_outputs_are_told_by_name_or_by_shape(gate: ModuleFacts) -> None:
    outputs = [TensorFact('output["loss"]', [], "float32"), TensorFact('output["ids"]', [2, 3], "int64")]
    facts = traced(gate, outputs=outputs)
    good = GOOD.replace(OUTPUT, "- loss: a scalar, float32\n- ids: (2, 3), int64")
    check_spec(good, "GateNew", facts.source, facts.trace)
    unnamed = GOOD.replace(OUTPUT, "- first: a scalar, float32\n- then: (2, 3), int64")
    check_spec(unnamed, "GateNew", facts.source, facts.trace)
    swapped = GOOD.replace(OUTPUT, "- ids: a scalar, int64\n- loss: (2, 3), float32")
    assert 'the shape of output["loss"] is (), not (2, 3)' in faults(swapped, facts)
    assert 'the shape of output["ids"], (2, 3), is not stated beside its name' in faults(swapped, facts)


@pytest.mark.parametrize("dtype", ["float32", "float64"], ids=["right", "wrong"])
def test_hundreds_of_tensors_are_checked_in_time_that_grows_with_the_text(
    gate: ModuleFacts, dtype: str
) -> None:
    def bullets(count: int) -> str:
        return "\n".join(f"- output[{n}]: ({n + 1}, 8), {dtype}" for n in range(count))

    def check(text: str) -> str:
        outputs = [TensorFact(f"output[{n}]", [n + 1, 8], "float32") for n in range(len(text.splitlines()))]
        facts = traced(gate, outputs=outputs)
        spec = GOOD.replace(OUTPUT, text)
        if dtype == "float64":
            return faults(spec, facts)
        check_spec(spec, "GateNew", facts.source, facts.trace)
        return ""

    assert growth(check, bullets, 125) < 64
    assert len(check(bullets(2000))) < 3000


@pytest.mark.parametrize(
    "text", ["(9, ", "9 x ", "((", "a.", "not the ", "return ", "`**", "<think ", "mask a "]
)
def test_a_hostile_text_is_refused_in_time_that_grows_with_the_text(gate: ModuleFacts, text: str) -> None:
    assert growth(lambda long: faults(GOOD.replace(X, long), gate), lambda n: text * n, 625) < 64


def test_prose_is_checked_as_a_whole_and_not_word_by_word(gate: ModuleFacts) -> None:
    def prose(sentences: int) -> str:
        said = "The result is rounded, element by element, as the dtype asks. "
        return GOOD.replace(HERE, said * sentences)

    def check(text: str) -> None:
        check_spec(text, "GateNew", gate.source, gate.trace)

    short, long = prose(60), prose(960)
    assert calls_of(lambda: check(long)) < 1.5 * calls_of(lambda: check(short))
    assert growth(check, prose, 60) < 64


@pytest.mark.parametrize(
    "answer",
    [
        f"\n\n{GOOD}\n\n",
        f"<think>x is (9, 9), hm</think>\n{GOOD}",
        f"Well, x is (9, 9), hm.\n</think>\n\n{GOOD}",
        f"{GOOD}<think>Was that all?</think>",
    ],
)
def test_thoughts_are_no_part_of_the_specification(answer: str) -> None:
    assert clean_spec(answer) == GOOD.strip()


@pytest.mark.parametrize("answer", [f"<think>{GOOD}", f"{GOOD}\n<think>or"])
def test_thoughts_that_do_not_end_make_an_answer_unusable(answer: str) -> None:
    with pytest.raises(BadAnswer, match="never closed"):
        clean_spec(answer)


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


@pytest.mark.heavy
def test_the_static_writer_passes_its_own_checks_on_every_bundled_module(sandbox: Sandbox) -> None:
    paths = [*(ROOT / "data/problems").rglob("*.py"), *(ROOT / "data/samples/modules").rglob("module.py")]
    assert len(paths) == 70

    async def check_all() -> None:
        for path in paths:
            name = None if "problems" in path.parts else path.parent.name.split("_")[0]
            facts = await module_facts(path.read_text(), name, sandbox)
            assert facts.trace is not None, f"{path}: {facts.trace_error}"
            class_name = f"{facts.source.entry_point}New"
            check_spec(
                write_spec(class_name, facts.source, facts.trace), class_name, facts.source, facts.trace
            )

    asyncio.run(check_all())


def test_the_static_specification_states_constants_and_the_flow_of_values(sandbox: Sandbox) -> None:
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
    facts = asyncio.run(module_facts(code, None, sandbox))
    assert facts.trace is not None
    text = write_spec("ModelNew", facts.source, facts.trace)
    assert "with min -1.5; the result, [1]" in text
    assert "Multiply [1] by 2.5" in text
    assert "Add x to [2]" in text
    assert "Take the mean of [3], with dim (1)" in text
    assert "Returned: output, which is [4]." in text


def test_the_static_specification_names_dtypes_and_views(sandbox: Sandbox) -> None:
    code = """
import torch, torch.nn as nn
class Model(nn.Module):
    def forward(self, x, n):
        y = x.float().view(2, 6)
        bits = x.view(torch.int16)
        return y.to(torch.float16).sum(dtype=torch.float32), bits + 0, n.double(), torch.arange(4, dtype=torch.float64)
def get_inputs():
    return [torch.rand(3, 4).bfloat16(), torch.ones(2, dtype=torch.int64)]
def get_init_inputs():
    return []
"""
    facts = asyncio.run(module_facts(code, None, sandbox))
    assert facts.trace is not None
    text = write_spec("ModelNew", facts.source, facts.trace)
    for sentence in (
        "1. Convert x to float32;",
        "2. View [1] as the shape (2, 6);",
        "3. Reinterpret the bits of x as int16;",
        "Convert [2] to float16;",
        "in float32;",
        "Convert n to float64;",
        "Count from the start to the end, with end 4, in float64;",
    ):
        assert sentence in text, text


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


@pytest.mark.timeout(900)
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


def test_rows_as_other_tools_write_them_are_taken_and_thoughts_left_out(
    tmp_path: Path, mill: Callable[..., Any]
) -> None:
    row = evals_row(1)
    row |= {"info": json.dumps(row["info"]), "name": None, "level": 1.0}
    write_rows(tmp_path / "rows.jsonl", [row])

    def thoughtful(body: dict[str, Any]) -> str:
        return f"<think>Let me see: num_warps…</think>\n\n{spec_for({**body, 'messages': [body['messages'][0]] * 3})}\n"

    with FakeEndpoint(reply=thoughtful) as endpoint:
        done = mill("specs", "rows.jsonl", "-o", "specs.jsonl", "--base-url", endpoint.base_url)
        assert done.returncode == 0, done.stderr
        assert endpoint.asked.total() == 1
    written = read_rows(tmp_path / "specs.jsonl")[0]
    assert written["prompt"].startswith("## What is computed")
    assert (written["name"], written["level"]) == (None, 1)
