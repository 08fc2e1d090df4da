"""Emitted files: they run by themselves, on inputs that make sense, and put together they are the model."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kernelmill.decompose.prove.files import OneDevice, check_file
from kernelmill.decompose.worker import decomposed

from .small import composed, files, module, run_by_itself, source

CASES = {
    "fills in place": ("pass", "return torch.empty(3).fill_(2) + x.clone().zero_() + x", "torch.randn(2, 3)"),
    "writes into views": ("pass", "y = x.clone(); y[:, 0] = 1; y[:, 1:] *= 2; return y.relu()", "torch.randn(2, 3)"),
    "fills a tensor bit by bit": ("self.fc = nn.Linear(3, 3)", "y = torch.zeros(2, 3); z = y[0]; y[:, 0] = x[:, 1]; y[0] = x[1] * 2; y[1, 1:] = self.fc(x)[0, :2]; k = y.clone(); k[0] = 5; return y + k", "torch.randn(2, 3)"),
    "shares a layer": ("self.fc = nn.Linear(3, 3)", "return self.fc(self.fc(x).relu())", "torch.randn(2, 3)"),
    "takes a dict": ("self.fc = nn.Linear(3, 3)", "return self.fc(x['a']) + x['b']", "{'a': torch.randn(2, 3), 'b': torch.randn(3)}"),
    "gives a structure": ("pass", "return {'a': x.relu(), 'b': (x.exp(), None, [x.tanh()])}", "torch.randn(2, 3)"),
    "complex numbers": ("pass", "y = torch.view_as_complex(x); return torch.view_as_real(y * y).flatten(1)", "torch.randn(2, 3, 2)"),
    "weights of functions": ("self.w = nn.ParameterList([nn.Parameter(torch.randn(3, 3)) for _ in range(2)])", "return (x @ self.w[0]).relu() @ self.w[1]", "torch.randn(2, 3)"),
    "looks at values": ("self.fc = nn.Linear(3, 3)", "return {'y': self.fc(x) if x.sum() > 0 else x}", "torch.randn(2, 3)"),
    "operators on bits": ("pass", "y = x << 2; y ^= y >> 1; y &= 63; y |= 5; z = 1 << (x % 4); return (y > 9).float() ** 2, z, 100 // (x + 1)", "torch.randint(0, 9, (2, 3))"),
    "names that modules have": ("self.apply_to = nn.Linear(3, 3)", "y = F.relu(self.apply_to(x)); return y.half().sum(1), [torch.cat([y, y]).float().type(torch.float64)]", "torch.randn(2, 3, dtype=torch.float32)"),
    "weights that are computed": ("self.base, self.hyper = nn.Linear(3, 2), nn.Linear(3, 8)", "w = self.hyper(x.mean(0)); return torch.func.functional_call(self.base, {'weight': w[:6].view(2, 3), 'bias': w[6:]}, (x,)).relu()", "torch.randn(2, 3)"),
    "statistics of the batch": ("pass", "return F.batch_norm(F.dropout(x, 0.0, training=True), None, None, training=True).relu()", "torch.randn(4, 3)"),
    "keeps a part": ("self.a, self.b = nn.Linear(3, 3), Halt(0.5)", "return self.b(self.a(x)).relu()", "torch.randn(2, 3)"),
}  # fmt: skip
HALT = """
def shrink(x, by):
    return x * by

class Halt(nn.Module):
    def __init__(self, by):
        super().__init__()
        self.by, self.fc = by, nn.Linear(3, 3)

    def forward(self, x):
        return shrink(self.fc(x), self.by) if x.mean() > 0 else self.fc(x)
"""


@pytest.mark.parametrize("case", CASES)
def test_every_file_runs_by_itself_and_all_together_are_the_model(case: str, tmp_path: Path) -> None:
    init, forward, inputs = CASES[case]
    made = files(source(init, forward, inputs, before=HALT if "Halt" in init else ""))
    for path, text in made.items():
        if path.startswith("level_") and "def run_tests" in text:
            run_by_itself(text)
    composed(made, tmp_path)


def test_a_part_that_is_kept_whole_carries_the_source_that_it_needs_and_no_more() -> None:
    init, forward, inputs = CASES["keeps a part"]
    made = files(source(init, forward, inputs, before=HALT + "\nclass Other(nn.Module):\n    pass\n"))
    (path,) = [path for path in made if path.startswith("level_0_kernel/halt")]
    assert "def shrink" in made[path]
    assert "class Halt" in made[path]
    assert "class Other" not in made[path]
    notes = json.loads(made["decomposition_tree.json"])["metadata"]["capture"]["notes"]
    assert any(note.startswith("b is kept whole") for note in notes)


def test_a_model_that_is_kept_whole_is_its_own_source() -> None:
    code = source(*CASES["looks at values"])
    made = files(code, 3)
    assert made["level_0_kernel/tiny.py"] == code
    assert not any(path.startswith("steps/") for path in made)


def test_indices_are_in_range_and_offsets_of_bags_in_order() -> None:
    gather = files(source("pass", "i = x.topk(2)[1]; return torch.gather(x, 1, i[..., None].expand(-1, -1, 1).squeeze(-1))", "torch.randn(3, 9)"))  # fmt: skip
    (text,) = [text for path, text in gather.items() if path.startswith("level_0_kernel/gather")]
    assert "torch.randint(0, 9, (3, 2))" in text
    bags = files(source("self.e = nn.EmbeddingBag(20, 4)", "return self.e(x, more[0]).relu()", "torch.randint(0, 20, (6,)), torch.tensor([0, 2, 4])"))  # fmt: skip
    (text,) = [text for path, text in bags.items() if path.startswith("level_0_kernel/embedding_bag")]
    indices, offsets = module(text).get_inputs()
    assert offsets.tolist() == [0, 2, 4]
    assert int(indices.max()) < 20


def test_what_cannot_be_below_zero_is_not_given_so() -> None:
    made = files(source("pass", "v = (x.abs() + 0.1).unsqueeze(0).mean(0); w = x - 1; return torch.topk(v, 2)[0], torch.sort(w)[0]", "torch.randn(3, 4)"))  # fmt: skip
    (positive,) = [text for path, text in made.items() if path.startswith("level_0_kernel/topk")]
    (any_number,) = [text for path, text in made.items() if path.startswith("level_0_kernel/sort")]
    assert "torch.rand(3, 4)" in positive
    assert "torch.randn(3, 4)" in any_number


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("F.dropout(x, 0.5, self.training)", "F.dropout(x, p=0.5, training=self.training)"),
        ("F.dropout(x, 0.5, False)", "F.dropout(x, p=0.5, training=False)"),
        ("F.dropout(x, 0.5, True)", "F.dropout(x, p=0.5, training=True)"),
        ("torch.dropout(x, 0.5, self.training)", "torch.dropout(x, 0.5, self.training)"),
        ("torch.dropout(x, 0.5, False)", "torch.dropout(x, 0.5, False)"),
    ],
)
def test_a_call_that_is_told_to_train_or_not_stays_so_and_others_follow_the_mode(
    given: str, written: str
) -> None:
    made = files(source("self.fc = nn.Linear(4, 4)", f"return self.fc({given}).relu()", "torch.randn(3, 4)"))
    (text,) = [text for path, text in made.items() if "level_0_kernel/linear" in path]
    assert written in text


def test_a_model_that_does_other_calls_in_training_has_dropout_that_follows_its_mode() -> None:
    forward = "x = torch.dropout(x, 0.5, self.training); return self.fc(x * 2 if self.training else x).relu()"
    made = files(source("self.fc = nn.Linear(4, 4)", forward, "torch.randn(3, 4)"))
    (text,) = [text for path, text in made.items() if "level_0_kernel/linear" in path]
    assert "torch.dropout(x, 0.5, self.training)" in text


GATE = """
class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 8)

    def forward(self, x, list=None):
        keep = x
        hidden, gate = self.fc(x).chunk(2, dim=-1)
        x = torch.tanh(hidden) if hidden.dim() else hidden
        input = x * 2
        gate = gate.sigmoid()
        gate += 1
        out, rest = input * gate, torch.zeros(3, 4)
        rest[:, 0] = out[:, 1]
        return out + keep, rest.cumsum(1)
"""


def test_a_layer_has_the_variables_of_its_author_and_kernels_have_none_of_them(tmp_path: Path) -> None:
    code = source("self.a, self.b = Gate(), nn.Linear(4, 4)", "y, z = self.a(x); return self.b(y).relu() + z", "torch.randn(3, 4)", before=GATE)  # fmt: skip
    made = files(code)
    (layer,) = [text for path, text in made.items() if path.startswith("level_2_layer/gate")]
    for line in (
        "hidden, gate = fc.chunk(2, dim=-1)",
        "x_2 = torch.tanh(hidden)",  # x is read again
        "x_2 = x_2 * 2",  # `input` is a function of Python's
        "gate = gate + 1",
        "out = x_2 * gate",
        "rest[:, 0] = ",
    ):
        assert line in layer
    for path, text in made.items():
        if path.startswith(("level_0", "level_1")):
            assert not any(name in text for name in ("hidden", "gate", "rest", "out ="))
        if path.startswith("level_") and "def run_tests" in text:
            run_by_itself(text)
    composed(made, tmp_path)
    again = files(code)
    assert {path: text for path, text in made.items() if path.endswith(".py")} == {
        path: text for path, text in again.items() if path.endswith(".py")
    }


def test_what_is_assigned_to_an_item_is_not_written_over_before_it_is_read(tmp_path: Path) -> None:
    forward = "y = self.fc(x); z = y * 2; w = self.fc(z).relu(); z = x.clone(); z[0] = w[0]; y[1] = z[1]; w = y; w[:, 1] = z[:, 0]; return self.fc(w) + y"
    composed(files(source("self.fc = nn.Linear(4, 4)", forward, "torch.randn(3, 4)"), 3), tmp_path)


def test_a_layer_is_named_for_what_is_not_the_default() -> None:
    made = files(source("self.c = nn.Conv1d(2, 3, 5)", "return self.c(x).relu()", "torch.randn(1, 2, 9)"))
    assert "level_0_kernel/conv1d_2x3_k5_fp32.py" in made


def test_the_same_work_is_written_once() -> None:
    made = files(
        source(
            "self.fc = nn.ModuleList(nn.Linear(4, 4) for _ in range(6))",
            "\n        for fc in self.fc:\n            x = fc(x).relu()\n        return x",
            "torch.randn(2, 4)",
        )
    )
    assert sorted(path for path in made if path.startswith("level_0_kernel/")) == [
        "level_0_kernel/linear_4x4_fp32.py",
        "level_0_kernel/relu_fp32.py",
    ]


_FUSED = """
import torch, sys
sys.path.insert(0, "verification")
import composition_test
torch.manual_seed(0)
model, x = composition_test.Model().eval(), torch.randn(2, 3, 8, 8)
with torch.no_grad():
    torch.testing.assert_close(torch.compile(model)(x), model(x))
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a C++ compiler")
@pytest.mark.heavy
def test_kernels_of_a_level_2_problem_fused_again_by_inductor_give_the_same(tmp_path: Path) -> None:
    made = files(
        source("self.c = nn.Conv2d(3, 4, 3)", "return torch.sigmoid(F.relu(self.c(x)) * 2 + 1)", "torch.randn(2, 3, 8, 8)"), 2
    )  # fmt: skip
    composed(made, tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", _FUSED], cwd=tmp_path, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_bfloat16_stays_bfloat16() -> None:
    made = files(
        source(
            "self.n = nn.LayerNorm(4, dtype=torch.bfloat16)",
            "return self.n(x).relu()",
            "torch.randn(2, 4, dtype=torch.bfloat16)",
        )
    )
    (text,) = [text for path, text in made.items() if path.startswith("level_0_kernel/layernorm")]
    loaded = module(text)
    assert loaded.Model(*loaded.get_init_inputs())(*loaded.get_inputs()).dtype is torch.bfloat16


def test_where_memory_is_short_variables_are_used_again() -> None:
    init = "self.a, self.b = Gate(), nn.Linear(4, 4)"
    code = source(init, "y, z = self.a(x); return self.b(y).relu() + z", "torch.randn(3, 4)", before=GATE)
    large = code.replace("torch.randn(3, 4)", "torch.randn(1 << 24, 4)").replace(
        "torch.zeros(3, 4)", "torch.zeros(1 << 24, 4)"
    )
    names = []
    for text in (code, large):
        made = files(text)
        (layer,) = [text for path, text in made.items() if path.startswith("level_2_layer/gate")]
        names.append(
            set(re.findall(r"^        (\w+)(?:, (?:\w+))* = ", layer.partition("forward")[2], re.MULTILINE))
        )
    assert "out" in names[0]
    assert "out" not in names[1]
    assert len(names[1]) < len(names[0])


def test_a_source_that_is_one_layer_gives_it_its_name() -> None:
    forward = "return torch.cumsum(self.b(F.relu(self.a(x))), 1)"
    code = source("self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)", forward, "torch.randn(3, 4)")
    request = {"code": code, "name": "7_TwoLinears", "source_file": "7_TwoLinears.py", "source_level": 3}
    made = decomposed(request)
    assert [path for path in made if path.startswith("level_2")] == ["level_2_layer/TwoLinears_3x4_fp32.py"]
    run_by_itself(made["level_2_layer/TwoLinears_3x4_fp32.py"])


def test_height_and_width_that_are_equal_are_told_apart() -> None:
    """Found in a file that was proven at 16x16 and failed at 32x16: one was written for the other."""
    forward = """b, c, h, w = x.shape
        y = torch.sigmoid(x.amax(1))
        return torch.softmax(y.reshape(b, h * w), -1).view(b, h, w) * 2"""
    made = files(source("pass", forward, "torch.rand(2, 8, 16, 16)"))
    softmax = next(
        text for path, text in made.items() if path.startswith("level_0_kernel/") and "softmax(" in text
    )
    assert module(softmax).Model()(torch.rand(3, 32, 20)).shape == (3, 640)


ON_A_DEVICE = source(
    "self.table = nn.Embedding(16, 8)",
    """n = x.shape[1]
        mask = torch.triu(torch.ones(n, n, device=x.device), 1)
        h = self.table(torch.arange(n, device=x.device)) + x
        return torch.softmax(h @ h.transpose(1, 2) - mask * 1e9, -1) @ h * torch.linspace(0, 1, 8)""",
    "torch.rand(2, 16, 8)",
)


def test_parts_make_their_tensors_where_their_inputs_are() -> None:
    """On `meta`, since every machine has that: a tensor on the CPU shows there as it does on a GPU."""
    made = files(ON_A_DEVICE)
    texts = {path: text for path, text in made.items() if path.startswith("level_")}
    assert [text for text in texts.values() if "linspace(0, 1, 8, device=" in text], (
        "the source has no device there"
    )
    assert [text for text in texts.values() if "def forward(self, size)" in text], (
        "a part that is given no tensor"
    )
    for path, text in texts.items():
        with torch.device("meta"):
            part = module(text).Model(*module(text).get_init_inputs())
            inputs = module(text).get_inputs()
        with OneDevice():
            assert part(*inputs).device.type == "meta", path


def test_a_file_that_makes_a_tensor_on_the_cpu_is_not_proven() -> None:
    made = {path: text for path, text in files(ON_A_DEVICE).items() if path.startswith("level_0")}
    looked = {path: check_file(text, ON_A_DEVICE)["violations"] for path, text in made.items()}
    assert set(map(tuple, looked.values())) == {()}
    for path, text in made.items():
        if "device=" in text:
            without = re.sub(r", device=[\w.]+", "", text)
            (line,) = check_file(without, ON_A_DEVICE)["violations"]
            assert line.startswith("on another device it"), path
