"""What tracing states about a module, and that a module cannot do harm while it is traced."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import socket
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kernelmill.errors import SourceError
from kernelmill.problems.facts import (
    TRACE_WORKER,
    ModuleFacts,
    OpFact,
    ParameterFact,
    TensorFact,
    Trace,
    ValueFact,
    module_facts,
)
from kernelmill.sandbox import Reply, Sandbox
from kernelmill.sandbox.reply import make_reply
from tests.conftest import own_children

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed: nothing can be traced", allow_module_level=True)

pytestmark = pytest.mark.own_servers
HEAD = """
import torch
import torch.nn as nn
import torch.nn.functional as F
"""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAKE_API_KEY", "sk-secret-in-the-parent")
        with Sandbox(TRACE_WORKER, timeout=8, memory_mb=1024) as warm:
            assert warm.what_is_missing() is not None  # waits for torch, so that no test's time includes it
            yield warm
        assert own_children() == []


def facts(sandbox: Sandbox | None, code: str, entry_point: str | None = None) -> ModuleFacts:
    return asyncio.run(module_facts(HEAD + textwrap.dedent(code), entry_point, sandbox))


def trace(sandbox: Sandbox, code: str, entry_point: str | None = None) -> Trace:
    found = facts(sandbox, code, entry_point)
    assert found.trace is not None, found.trace_error
    return found.trace


def trace_error(sandbox: Sandbox, code: str) -> str:
    found = facts(sandbox, code)
    assert found.trace is None
    assert found.trace_error is not None
    assert len(found.trace_error.splitlines()) == 1
    return found.trace_error


def model(forward: str, inputs: str = "torch.rand(4, 8)", init: str = "pass") -> str:
    """A module whose `forward` returns one expression of `x`."""
    return textwrap.dedent(f"""
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                {init}
            def forward(self, x):
                return {forward}
        def get_inputs():
            return [{inputs}]
        def get_init_inputs():
            return []
    """)


# ------------------------------------------------------------------------------------------------ what is stated

PERCEPTRON = """
    class Model(nn.Module):
        def __init__(self, width, depth=1, act="relu"):
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(width, 16, bias=False), nn.ReLU())
            self.head = nn.Linear(16, 3)
            self.head.bias.requires_grad_(False)
            self.register_buffer("scale", torch.ones(3, dtype=torch.float16))
        def forward(self, x, flag=True):
            return self.head(self.inner(x)) * self.scale.float()
    def get_inputs():
        return [torch.rand(5, 8)]
    def get_init_inputs():
        return [8, 2]
"""


def test_a_module_is_described_by_what_it_takes_holds_computes_and_returns(sandbox: Sandbox) -> None:
    found = trace(sandbox, PERCEPTRON)
    assert (found.convention, found.mode) == ("kernelbench", "fake")
    assert found.init_values == [ValueFact("width", "8"), ValueFact("depth", "2")]
    assert found.inputs == [TensorFact("x", [5, 8], "float32")]
    assert found.outputs == [TensorFact("output", [5, 3], "float32")]
    assert found.parameters == [
        ParameterFact("inner.0.weight", [16, 8], "float32", True, "nn.Linear"),
        ParameterFact("head.weight", [3, 16], "float32", True, "nn.Linear"),
        ParameterFact("head.bias", [3], "float32", False, "nn.Linear"),
    ]
    assert found.buffers == [TensorFact("scale", [3], "float16")]
    assert found.submodule_types == {"nn.Sequential": 1, "nn.Linear": 2, "nn.ReLU": 1}
    computed = [op for op in found.ops if op.kind not in ("view", "copy")]
    assert computed == [
        OpFact("aten.mm", "matmul", [5, 16], 2 * 5 * 8 * 16, "inner.0", {"self": "x", "mat2": "[1]"}),
        OpFact("aten.relu", "elementwise", [5, 16], None, "inner.1", {"self": "[2]"}),
        OpFact(
            "aten.addmm",
            "matmul",
            [5, 3],
            2 * 5 * 16 * 3,
            "head",
            {"self": "head.bias", "mat1": "[3]", "mat2": "[4]"},
        ),
        OpFact("aten.mul", "elementwise", [5, 3], None, "", {"self": "[5]", "other": "[6]"}),
    ]
    assert found.returned == ["[7]"]
    assert found.ops_left_out == 0


def test_facts_survive_being_written_and_read(sandbox: Sandbox) -> None:
    found = facts(sandbox, PERCEPTRON)
    assert msgspec.json.decode(msgspec.json.encode(found), type=ModuleFacts) == found


def test_a_kernelbook_row_is_built_from_its_arguments_and_its_configuration_object(sandbox: Sandbox) -> None:
    code = """
        from _paritybench_helpers import _mock_config
        class Block(nn.Module):
            def __init__(self, cfg, size, *, bias=True):
                super().__init__()
                self.fc = nn.Linear(cfg.K, cfg["size"], bias=bias)
            def forward(self, s):
                return self.fc(s)
        def get_inputs():
            return [torch.rand([4, 4, 4, 4])]
        def get_init_inputs():
            return [[_mock_config(K=4, size=2)], {'size': 3, 'bias': False}]
    """
    found = trace(sandbox, code, "Block")
    assert found.convention == "kernelbook"
    assert [(v.name, v.repr) for v in found.init_values] == [
        ("cfg", "{'K': 4, 'size': 2}"),
        ("size", "3"),
        ("bias", "False"),
    ]
    assert found.outputs[0].shape == [4, 4, 4, 2]


@pytest.mark.parametrize(
    ("returned", "convention", "arguments"),
    [
        ("[[], {}]", "kernelbook", {}),
        ("[[1], {'b': 2}]", "kernelbook", {"a": "1", "b": "2"}),
        ("[]", "kernelbench", {}),
        ("[1, 2]", "kernelbench", {"a": "1", "b": "2"}),
        ("[[1, 2], [3]]", "kernelbench", {"a": "[1, 2]", "b": "[3]"}),
        ("[{'k': 1}, [2]]", "kernelbench", {"a": "{'k': 1}", "b": "[2]"}),
        ("[[1]]", "kernelbench", {"a": "[1]"}),
        ("[[1], {}, 3]", "kernelbench", {"a": "[1]", "b": "{}", "c": "3"}),
    ],
)
def test_the_two_conventions_are_told_apart_by_shape(
    sandbox: Sandbox, returned: str, convention: str, arguments: dict[str, str]
) -> None:
    code = f"""
        class Model(nn.Module):
            def __init__(self, a=None, b=None, c=None):
                super().__init__()
            def forward(self, x):
                return x + 1
        def get_inputs():
            return [torch.rand(2)]
        def get_init_inputs():
            return {returned}
    """
    found = trace(sandbox, code)
    assert found.convention == convention
    assert {v.name: v.repr for v in found.init_values} == arguments


def test_outputs_are_named_by_their_place(sandbox: Sandbox) -> None:
    code = model('(x, [x > 0, None], {"loss": x.sum(), "n": (x.argmax(), 3)})')
    found = trace(sandbox, code)
    assert [(o.name, o.shape, o.dtype) for o in found.outputs] == [
        ("output[0]", [4, 8], "float32"),
        ("output[1][0]", [4, 8], "bool"),
        ('output[2]["loss"]', [], "float32"),
        ('output[2]["n"][0]', [], "int64"),
    ]
    assert found.output_values == [ValueFact("output[1][1]", "None"), ValueFact('output[2]["n"][1]', "3")]


def test_inputs_of_every_type_are_named_by_the_parameters_they_go_to(sandbox: Sandbox) -> None:
    code = """
        class Model(nn.Module):
            def forward(self, ids, mask, parts, k, *more, scale, **rest):
                return ids * mask * scale + parts[1] + more[0]
        def get_inputs():
            return [torch.randint(0, 9, (2, 3)), torch.ones(2, 3, dtype=torch.bool),
                    [torch.rand(1), torch.rand(3)], 7, torch.rand(2, 3).double()]
        def get_input_kwargs():
            return {"scale": torch.rand(1).half(), "extra": "e"}
        def get_init_inputs():
            return []
    """
    found = trace(sandbox, code)
    assert [(i.name, i.shape, i.dtype) for i in found.inputs] == [
        ("ids", [2, 3], "int64"),
        ("mask", [2, 3], "bool"),
        ("parts[0]", [1], "float32"),
        ("parts[1]", [3], "float32"),
        ("more[0]", [2, 3], "float64"),
        ("scale", [1], "float16"),
    ]
    assert found.input_values == [ValueFact("k", "7"), ValueFact("rest", "{'extra': 'e'}")]


def test_a_problem_of_hundreds_of_gigabytes_is_traced_without_making_its_tensors(sandbox: Sandbox) -> None:
    code = model(
        "torch.softmax(self.fc(x), -1).cumsum(0)",
        "torch.rand(1 << 20, 1 << 15)",
        "self.fc = nn.Linear(1 << 15, 1 << 15)",
    )
    found = trace(sandbox, code)  # the child has a gigabyte
    assert found.mode == "fake"
    assert found.outputs == [TensorFact("output", [1 << 20, 1 << 15], "float32")]
    assert [op.flops for op in found.ops if op.kind == "matmul"] == [2 << 50]


@pytest.mark.parametrize(
    "forward",
    [
        "x * x.sum().item()",
        "x if x.sum() > 0 else -x",
        "torch.from_numpy(x.numpy() + 1)",
        "x[x > 0.5].sum()",
        "x.nonzero()",
        "torch.tensor(x.tolist())",
    ],
)
def test_a_module_that_looks_at_numbers_is_run_for_real(sandbox: Sandbox, forward: str) -> None:
    assert trace(sandbox, model(forward)).mode == "real"


def test_what_would_not_fit_is_not_run_for_real(sandbox: Sandbox) -> None:
    error = trace_error(sandbox, model("x * x.sum().item()", "torch.rand(1 << 32)"))
    assert "a real run would take about 32.0 GiB, the limit is 1.0 GiB" in error


def test_parameters_made_by_the_first_run_are_stated(sandbox: Sandbox) -> None:
    found = trace(sandbox, model("self.fc(x)", init="self.fc = nn.LazyLinear(5)"))
    assert [(p.name, p.shape) for p in found.parameters] == [("fc.weight", [5, 8]), ("fc.bias", [5])]


@pytest.mark.heavy
def test_a_run_of_very_many_operations_is_cut_and_says_so() -> None:
    code = model("sum((x.view(32) for _ in range(11_000)), x.view(32))")
    with Sandbox(TRACE_WORKER, timeout=120) as patient:  # how long it takes is the machine's affair
        found = trace(patient, code)
    assert len(found.ops) == 20_000
    assert found.ops_left_out == 2 * 11_000 + 1 - 20_000


# ------------------------------------------------------------------------------------------------------- kinds

KINDS = {
    "x.transpose(0, 1)": "view",
    "x[:, 2:5]": "view",
    "x.unsqueeze_(0)": "view",
    "x.clone()": "copy",
    "torch.cat([x, x])": "copy",
    "F.pad(x, (1, 1))": "copy",
    "x.half()": "copy",
    "torch.flip(x, [0])": "copy",
    "F.gelu(x)": "elementwise",
    "F.hardswish(x)": "elementwise",
    "F.leaky_relu(x)": "elementwise",
    "x.relu_()": "elementwise",
    "x.gt_(0.5)": "elementwise",
    "x // 2": "elementwise",
    "torch.where(x > 0, x, 1.0)": "elementwise",
    "torch.clamp(x, 0, 1)": "elementwise",
    "torch.tril(x)": "elementwise",
    "torch.maximum(x, x)": "elementwise",
    "x.mean()": "reduction",
    "x.max(dim=1)[0]": "reduction",
    "torch.linalg.vector_norm(x)": "reduction",
    "x.argmin()": "reduction",
    "F.mse_loss(x, x)": "reduction",
    "torch.var_mean(x)": "reduction",
    "F.layer_norm(x, (8,))": "normalization",
    "F.batch_norm(x, None, None, training=True)": "normalization",
    "F.group_norm(x, 2)": "normalization",
    "F.softmax(x, 0)": "softmax",
    "F.log_softmax(x, 1)": "softmax",
    "x @ x.T": "matmul",
    "torch.bmm(x[None], x.T[None])": "matmul",
    "torch.baddbmm(x[:, :4][None], x[None], x.T[None])": "matmul",
    "torch.einsum('ij,kj->ik', x, x)": "matmul",
    "F.linear(x, x)": "matmul",
    "F.conv1d(x[None], torch.ones(2, 4, 3))": "convolution",
    "F.conv_transpose2d(x[None, None], torch.ones(1, 1, 2, 2))": "convolution",
    "F.max_pool1d(x, 2)": "pooling",
    "F.adaptive_avg_pool2d(x[None], 2)": "pooling",
    "F.avg_pool2d(x[None], 2)": "pooling",
    "F.embedding(torch.arange(3), x)": "gather",
    "x[torch.arange(2)]": "gather",
    "x.scatter_add(0, torch.zeros(1, 1).long(), x)": "gather",
    "F.interpolate(x[None, None], scale_factor=2)": "gather",
    "torch.cumsum(x, 1)": "scan_sort",
    "torch.sort(x)[0]": "scan_sort",
    "torch.topk(x, 2)[1]": "scan_sort",
    "F.dropout(x)": "random",
    "torch.rand_like(x)": "random",
    "x.new_zeros(3)": "creation",
    "torch.arange(4)": "creation",
    "torch.fft.rfft(x).real": "other",
    "torch.linalg.qr(x)[0]": "other",
}


def test_operations_are_of_the_kind_a_kernel_writer_would_say(sandbox: Sandbox) -> None:
    """All in one module, for the sake of time: each expression in a submodule of its own."""
    classes = "".join(
        f"class M{i}(nn.Module):\n    def forward(self, x):\n        return {expression}\n"
        for i, expression in enumerate(KINDS)
    )
    names = ", ".join(f"M{i}()" for i in range(len(KINDS)))
    code = classes + model("[m(x.clone()) for m in self.all]", init=f"self.all = nn.ModuleList([{names}])")
    kinds: dict[str, set[str]] = {}
    for op in trace(sandbox, code).ops:
        kinds.setdefault(op.module, set()).add(op.kind)
    wrong = {
        e: kinds[f"all.{i}"] for i, (e, kind) in enumerate(KINDS.items()) if kind not in kinds[f"all.{i}"]
    }
    assert wrong == {}


@pytest.mark.parametrize(
    "forward",
    [
        "F.scaled_dot_product_attention(x, x, x)",
        "F.scaled_dot_product_attention(x, x, x, is_causal=True)",
        "F.scaled_dot_product_attention(x, key=x, value=x, attn_mask=torch.ones(4, 4).bool())",
        "F.scaled_dot_product_attention(x, x[:, :1], x[:, :1], enable_gqa=True)",
        "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(x, x, x)[0]",
        "self.mha(*[x[:, 0]] * 3, need_weights=False)[0]",
    ],
)
@pytest.mark.parametrize("look", ["", " * x.sum().item()"])
def test_attention_is_one_operation_in_every_form(sandbox: Sandbox, forward: str, look: str) -> None:
    code = model(forward + look, "torch.rand(2, 2, 4, 8)", "self.mha = nn.MultiheadAttention(8, 2)")
    found = trace(sandbox, code)
    assert found.mode == ("real" if look else "fake")
    assert [op.kind for op in found.ops].count("attention") == 1
    assert not any(op.kind == "softmax" for op in found.ops)
    if "mha" not in forward:
        assert not any(op.kind == "matmul" for op in found.ops)
        assert next(op.flops for op in found.ops if op.kind == "attention") == 2 * 2 * 2 * 4 * 4 * (8 + 8)


@pytest.mark.parametrize("look", ["", "x * x.sum().item()", "None"])
@pytest.mark.parametrize(
    ("layer", "op", "gates"),
    [("LSTM", "aten.lstm", 4), ("GRU", "aten.gru", 3), ("RNN", "aten.rnn_tanh", 1)],
)
def test_a_recurrent_module_is_one_operation_with_the_shapes_of_a_real_run(
    sandbox: Sandbox, layer: str, op: str, gates: int, look: str
) -> None:
    kwargs = "batch_first=True, bidirectional=True, num_layers=2"
    code = model(
        f"[self.rnn(x), {look or 'x'}]", "torch.rand(2, 50, 8)", f"self.rnn = nn.{layer}(8, 6, {kwargs})"
    )
    found = trace(sandbox, code)
    assert found.mode == ("real" if "item" in look else "fake")
    weights = 2 * gates * 6 * (8 + 6) + 2 * gates * 6 * (12 + 6)
    inside = [o for o in found.ops if o.module == "rnn"]
    assert inside == [OpFact(op, "recurrent", [2, 50, 12], 2 * weights * 2 * 50, "rnn", inside[0].arguments)]
    states = [o.shape for o in found.outputs if o.name.startswith("output[0][1]")]
    assert states == [[4, 2, 6]] * (2 if layer == "LSTM" else 1)


def test_recurrent_cells_functions_and_packed_sequences_are_one_operation_each(sandbox: Sandbox) -> None:
    pack = "nn.utils.rnn.pack_padded_sequence(x, torch.tensor([50, 20]), batch_first=True)"
    layers = "[nn.GRUCell(8, 6), nn.LSTM(8, 6, proj_size=3, batch_first=True), nn.LSTMCell(8, 6), nn.RNNCell(8, 6)]"
    code = model(
        f"[self.l[0](x[:, 0]), self.l[1]({pack})[0].data, self.l[2](x[:, 0]), self.l[3](x[:, 0]), "
        "torch.gru(x, torch.zeros(1, 2, 6), list(self.l[0].parameters()), True, 1, 0.0, False, False, True)[0]]",
        "torch.rand(2, 50, 8)",
        f"self.l = nn.ModuleList({layers})",
    )
    found = trace(sandbox, code)
    recurrent = [(o.op, o.shape) for o in found.ops if o.kind == "recurrent"]
    assert recurrent == [
        ("aten.gru_cell", [2, 6]),
        ("aten.lstm", [70, 3]),
        ("aten.lstm_cell", [2, 6]),
        ("aten.rnn_tanh_cell", [2, 6]),
        ("aten.gru", [2, 50, 6]),
    ]
    assert not any(o.kind == "matmul" for o in found.ops)


# ------------------------------------------------------------------------------------------------------ failures


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (
            model("self.fc(x)", init="self.fc = nn.Linear(3, 2)"),
            r"RuntimeError: .*\(line 11: return self.fc\(x\)\)",
        ),
        (model("x", init="raise KeyError('no')"), r"KeyError: 'no' \(line 9: raise KeyError"),
        (model("x", init="import no_such_package"), "ModuleNotFoundError: No module named 'no_such_package'"),
        (model("x", init="raise SystemExit(3)"), r"SystemExit: 3 \(line 9"),
        (model("x", "1 / 0"), r"ZeroDivisionError: division by zero \(line 13"),
        (model("x").replace("[torch.rand(4, 8)]", "{'x': 1}"), r"get_inputs\(\) returned a dict"),
        (model("x").replace("return []", "return 3"), r"get_init_inputs\(\) returned a int"),
        (model("x").replace("get_inputs", "other"), "no get_inputs"),
        ("class Model:\n    pass", "Model is not an nn.Module subclass"),
        (model("1 / 0") + "raise ValueError('one\\ntwo')", "ValueError: one two"),
    ],
)
def test_an_error_is_one_line_with_its_type_and_the_line_of_the_source(
    sandbox: Sandbox, code: str, says: str
) -> None:
    found = facts(sandbox, code)
    assert found.source.entry_point == "Model"
    with pytest.raises(AssertionError, match=says):
        raise AssertionError(trace_error(sandbox, code))


def test_a_source_that_cannot_be_read_is_an_error_and_is_not_run(sandbox: Sandbox) -> None:
    with pytest.raises(SourceError):
        facts(sandbox, "class Model(:")


def test_without_an_isolated_process_nothing_is_run_and_the_reason_is_stated(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    found = facts(None, model("x") + f"open({str(marker)!r}, 'w')\n")
    assert (found.trace, found.trace_error) == (None, "not traced: no isolated process was given")
    assert found.source.entry_point == "Model"
    assert not marker.exists()


def test_without_torch_the_reason_is_stated(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "torch is not installed" in (facts(sandbox, model("x")).trace_error or "")


def test_a_reply_that_is_no_trace_is_not_believed() -> None:
    class Liar(Sandbox):
        async def run(self, request: dict[str, Any], timeout: float | None = None) -> Reply:  # noqa: ASYNC109
            return make_reply("ok", result={"mode": "fake"})

    assert "answered something else" in (facts(Liar(TRACE_WORKER), model("x")).trace_error or "")


def test_source_can_be_inspected_and_scripted_while_it_is_traced(sandbox: Sandbox) -> None:
    code = """
        import inspect
        @torch.jit.script
        def twice(x):
            return x * 2
        @torch.compile
        def thrice(x):
            return x * 3
    """
    body = "(thrice(twice(x)), inspect.getsource(Model)[:18])"
    found = trace(sandbox, textwrap.dedent(code) + model(body))
    assert found.output_values == [ValueFact("output[1]", "'class Model(nn.Mod'")]


# -------------------------------------------------------------------------------------------------------- attacks


def test_a_module_finds_no_secret_in_its_environment(sandbox: Sandbox) -> None:
    code = model("(x, sorted(__import__('os').environ))")
    names = trace(sandbox, code).output_values[0].repr
    assert "OMP_NUM_THREADS" in names
    assert "FAKE_API_KEY" in os.environ
    assert "FAKE_API_KEY" not in names


def test_a_module_cannot_read_or_write_the_users_files(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if any(line.startswith("landlock") for line in sandbox.what_is_missing()):
        pytest.skip("this kernel has no landlock")
    monkeypatch.chdir(tmp_path)
    secret = tmp_path / ".env"
    secret.write_text("KEY=secret")
    for attack in (
        f"open({str(secret)!r}).read()",
        f"open({str(secret)!r}, 'w')",
        f"torch.load({str(secret)!r})",
    ):
        assert "PermissionError" in trace_error(sandbox, model("x", init=attack))
    assert "FileNotFoundError" in trace_error(sandbox, model("x", init="open('.env')"))
    assert secret.read_text() == "KEY=secret"


def test_a_module_cannot_reach_a_listener(sandbox: Sandbox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        attack = f"__import__('socket').create_connection(('127.0.0.1', {port}), 1)"
        assert "Error" in trace_error(sandbox, model("x", init=attack))
        listener.settimeout(0.05)
        with pytest.raises(TimeoutError):
            listener.accept()


ATTACKS = {
    "import os; os._exit(0)": "crashed: exited with status 0",
    "import os; os.abort()": "crashed: killed by SIGABRT",
    "import os; exec('while True: os.fork()')": "PermissionError",
    "x = bytearray(100 << 30)": "out of memory",
    "import numpy; numpy.ones(100 << 30)": "out of memory",
    "import sys; sys.exit()": "SystemExit",
}


@pytest.mark.parametrize(("attack", "says"), ATTACKS.items(), ids=ATTACKS.keys())
def test_a_hostile_module_costs_one_request(sandbox: Sandbox, attack: str, says: str) -> None:
    assert says in trace_error(sandbox, model("x", init=attack))
    assert trace(sandbox, model("x + 1")).mode == "fake"
    assert len(own_children()) == 1


def test_an_endless_module_costs_one_request() -> None:
    with Sandbox(TRACE_WORKER, timeout=2) as sandbox:
        assert "timeout: timed out after 2" in trace_error(sandbox, model("x", init="while True: pass"))
        assert trace(sandbox, model("x + 1")).mode == "fake"


def test_real_memory_is_bounded(sandbox: Sandbox) -> None:
    code = model("[x.sum().item() * torch.ones(1 << 26) for _ in range(100)]")
    assert "out of memory" in trace_error(sandbox, code)


def test_nothing_of_a_module_reaches_this_process(sandbox: Sandbox) -> None:
    before = set(sys.modules)
    trace(sandbox, model("x") + "import this\n")
    assert {name for name in set(sys.modules) - before if name in ("this", "torch")} == set()


@pytest.mark.heavy
def test_a_warm_isolate_traces_a_small_module_in_a_fraction_of_the_time_that_a_fresh_one_takes(
    sandbox: Sandbox,
) -> None:
    code = model("F.relu(self.fc(x)).sum()", init="self.fc = nn.Linear(8, 8)")

    def seconds(sandbox: Sandbox) -> float:
        start = time.monotonic()
        trace(sandbox, code)
        return time.monotonic() - start

    with Sandbox(TRACE_WORKER, timeout=60) as fresh:
        cold = seconds(fresh)  # it imports torch first
    assert min(seconds(sandbox) for _ in range(10)) < cold / 4
