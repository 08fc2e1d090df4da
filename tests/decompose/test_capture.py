"""What is recorded of a run: calls as they were written, sizes that remember where they are from, modules kept whole."""

from __future__ import annotations

import pytest

from kernelmill.decompose.cut.kinds import title_of
from kernelmill.decompose.errors import CannotRecord
from kernelmill.decompose.record.capture import capture
from kernelmill.decompose.record.types import Record

from .small import source


def titles(record: Record) -> list[str]:
    return [title_of(op) for op in record.root.ops()]


def test_a_layer_of_torch_is_one_call_and_a_function_is_as_it_was_written() -> None:
    code = source("self.fc = nn.Linear(4, 3)", "return F.softmax(self.fc(x), dim=-1)", "torch.randn(2, 4)")
    assert titles(capture(code)) == ["linear", "softmax"]


def test_a_run_needs_no_memory() -> None:
    record = capture(source("pass", "return x.relu()", "torch.empty(1 << 20, 1 << 20)"))
    assert record.mode == "fake"
    assert record.inputs[0].shape == (1 << 20, 1 << 20)


@pytest.mark.parametrize("how", ["self.half()", "self.to(torch.bfloat16)", "self.double().half()"])
def test_a_model_that_converts_itself_needs_no_memory_either(how: str) -> None:
    init = f"self.a = nn.Linear(4, 4)\n        self.b = nn.Linear(4, 4)\n        self.b.weight = self.a.weight\n        {how}"
    record = capture(source(init, "return self.b(self.a(x.to(self.a.weight.dtype)))", "torch.randn(2, 4)"))
    assert record.mode == "fake"
    assert titles(record)[-2:] == ["linear", "linear"]


def test_python_that_looks_at_values_keeps_the_smallest_module_around_it_whole() -> None:
    code = source(
        "self.fc, self.halt = nn.Linear(4, 4), Halt(4)",
        "return self.halt(self.fc(x)).relu()",
        "torch.randn(2, 4)",
        before="""
class Halt(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, width)

    def forward(self, x):
        while x.norm() > 1:
            x = self.fc(x).tanh() * 0.4
        return x
""",
    )
    record = capture(code)
    kept = [op.module for op in record.root.ops() if op.module and op.module.opaque_reason]
    assert [(leaf.path, leaf.kind, leaf.required) for leaf in kept] == [("halt", "Halt", {"width": 4})]
    assert set(kept[0].weights) == {"fc.weight", "fc.bias"}
    assert titles(record) == ["linear", "halt", "relu"]
    assert any("halt is kept whole" in note and "values" in note for note in record.notes)


@pytest.mark.parametrize(
    ("init", "forward", "why"),
    [
        ("pass", "return x * x.max().item()", "item"),
        ("pass", "return x[x > 0].mean()", "size depends"),
        ("pass", "return x.flatten()[torch.nonzero(x.flatten())].sum()", "size depends"),
        ("self.register_buffer('seen', torch.zeros(()))", "self.seen += 1; return x + self.seen", "writes into seen"),
        (
            "self.fc = nn.Linear(4, 4)",
            "\n        with torch.autocast('cpu', dtype=torch.bfloat16):\n            return self.fc(x)",
            "autocast",
        ),
        ("pass", "return torch.vmap(lambda row: row.sum() * row)(x)", "transformed"),
    ],
)  # fmt: skip
def test_a_model_that_one_run_does_not_describe_is_one_call(init: str, forward: str, why: str) -> None:
    record = capture(source(init, forward, "torch.randn(2, 4)"))
    (op,) = record.root.ops()
    assert op.module is not None
    assert (op.module.path, op.module.kind) == ("", "Model")
    assert why in (op.module.opaque_reason or "")


def test_a_model_that_looks_at_values_and_is_not_made_from_constants_is_refused() -> None:
    code = source("pass", "return x * x.max().item()", "torch.randn(2, 4)", arguments="table")
    with pytest.raises(CannotRecord, match="looks at a tensor's values"):
        capture(code.replace("return []", "return [torch.ones(2)]"))


def test_inference_mode_hides_nothing() -> None:
    code = source("pass", "\n        with torch.inference_mode():\n            return x.relu_() + 1", "torch.randn(2, 4)")  # fmt: skip
    assert titles(capture(code)) == ["relu", "add"]


def test_a_lazy_layer_is_what_it_becomes() -> None:
    record = capture(source("self.fc = nn.LazyLinear(3)", "return self.fc(x)", "torch.randn(2, 4)"))
    (op,) = record.root.ops()
    assert op.module is not None
    assert (op.module.kind, op.module.required) == ("Linear", {"in_features": 4, "out_features": 3})


def test_a_transformer_is_recorded_without_a_look_at_its_mask() -> None:
    code = source(
        "self.t = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16), 1)",
        "return self.t(x, x, tgt_mask=nn.Transformer.generate_square_subsequent_mask(3))",
        "torch.randn(3, 2, 8)",
    )
    record = capture(code)
    assert record.mode != "real"
    assert titles(record).count("attention") == 2


def test_python_may_look_at_what_is_made_from_constants_alone() -> None:
    code = source(
        "pass",
        "last = torch.arange(x.shape[1]).max().item(); steps = torch.zeros(3); steps += last; return x * last + int(steps[0])",
        "torch.randn(2, 4)",
    )
    record = capture(code)
    assert (record.mode, record.notes) == ("fake", [])
    assert [op.args[1] for op in record.root.ops() if title_of(op) in ("mul", "add")] == [3, 3, 3]
    assert titles(record)[2:4] == [
        "zeros",
        "add",
    ]  # what is written into a tensor that has a value is recorded


@pytest.mark.parametrize(
    "forward",
    [
        "return x * self.scale.sum().item()",
        "return x * torch.ones(3).mul(self.scale).sum().item()",
        "return x * torch.zeros(2, 4).add_(x).sum().item()",
        "return x * torch.rand(()).item()",
        "y = torch.zeros(2, 4); z = y[0]; z.copy_(x[0]); return x * y.sum().item()",
    ],
)
def test_what_depends_on_weights_inputs_or_chance_is_not_looked_at(forward: str) -> None:
    record = capture(source("self.scale = nn.Parameter(torch.ones(3))", forward, "torch.randn(2, 4)"))
    (op,) = record.root.ops()
    assert op.module is not None
    assert "looks at a tensor's values" in (op.module.opaque_reason or "")


@pytest.mark.parametrize(
    ("forward", "whole"),
    [
        ("self.seen.copy_(x); return self.seen.relu()", False),
        ("y = self.seen.relu(); self.seen.copy_(x); return y", True),
        ("self.seen.add_(x); return self.seen.relu()", True),
    ],
)
def test_an_attribute_that_each_run_first_writes_over_is_no_state(forward: str, whole: bool) -> None:
    record = capture(source("self.seen = torch.zeros(2, 4)", forward, "torch.randn(2, 4)"))
    assert any(op.module is not None and op.module.opaque_reason for op in record.root.ops()) is whole
