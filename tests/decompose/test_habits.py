"""What authors do that torch does not see, or that only half makes sense in a part: each is decomposed and proven."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelmill.decompose.model_folder import write_model
from kernelmill.decompose.prove.prover import Prover, prove_folder

from .small import files, source

HABITS = {
    "numbers by the old constructor": ("pass", "return (x * torch.Tensor([1e10, 2, 3])).relu() + x", "torch.randn(2, 3)"),
    "numbers from numpy": ("pass", "import numpy as np; return x.relu() + torch.from_numpy(np.eye(9).flatten().astype('float32'))", "torch.randn(2, 81)"),
    "tensors in an object": ("import types; self.n = types.SimpleNamespace(mean=torch.randn(3), eps=0.1)", "return ((x - self.n.mean) / self.n.eps).relu()", "torch.randn(2, 3)"),
    "one result twice": ("self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)", "y = self.a(x).relu(); z = self.b(y).exp(); return {'last': z, 'all': [y, z]}", "torch.randn(2, 3)"),
    "a weight by itself and in its layer": ("self.e = nn.Embedding(4, 3)", "d = (x @ self.e.weight.t()).softmax(1); return self.e(d.argmax(1)) + x", "torch.randn(2, 3)"),
    "logarithms of what is positive": ("pass", "y = torch.zeros_like(x).scatter_(1, x.argmax(1, True), 1.0).flip(0); return torch.linalg.cholesky(x.t() @ x + torch.eye(3)).diagonal().log().sum() + (y.mean(0) + 1e-7).log().sum()", "torch.randn(4, 3)"),
    "indices as floats": ("self.m, self.h = nn.Embedding(5, 3), nn.Embedding(9, 3)", "i = x.long(); return (self.m(i[:, 0]) + self.h(i[:, 1])).relu()", "torch.randint(0, 5, (4, 2)).float()"),
    "room that is filled bit by bit": ("self.f = nn.Linear(3, 3)", "y = torch.empty(3, *x.shape); y[0] = x\n        for i in range(2): y[i + 1] = torch.tanh(self.f(y[i].clone()))\n        return y", "torch.randn(2, 3)"),
    "rows that are written through a view": ("self.f = nn.Linear(3, 3)", "y = self.f(x)\n        for row in y: row[row > 0] = 0.0\n        return y.exp()", "torch.randn(2, 3)"),
    "not for small numbers": ("self.f = nn.Linear(3, 5)", "y = self.f(x).relu(); return x.repeat(1, 2)[:, (x.abs().sum() > 3).long().mul(-9).add(8)].exp() + y.sum()", "torch.randn(2, 3) + 3"),
    "rows by a range": ("pass", "return x[range(2), x.argmax(1)].exp() + x.relu().sum()", "torch.randn(2, 3)"),
    "room by the old constructor": ("self.f = nn.Linear(3, 3)", "y = torch.FloatTensor(2, 2, 3)\n        for i in range(2): y[i] = self.f(x).tanh() * i\n        return y.exp()", "torch.randn(2, 3)"),
    "a weight that is given back": ("self.w = nn.Parameter(torch.randn(3))", "return (x * self.w).relu(), self.w", "torch.randn(2, 3)"),
    "nothing but a weight is given back": ("self.w = nn.Parameter(torch.randn(3))", "return self.w", "torch.randn(2, 3)"),
    "halves that several read": ("self.f = nn.Linear(3, 3)", "s, d = x; a = self.f(self.f(torch.ones(4, 3))[s]).relu(); i = d.view(-1, 1).expand(-1, 3); b = self.f(a).relu(); return b + torch.zeros(4, 3).scatter_add(0, i, a)[s] + torch.zeros(4, 3).scatter_add(0, i, b)[d]", "torch.randint(0, 4, (2, 8))"),
    "a tensor by another name": ("pass", "from torch.autograd import Variable; y = Variable(torch.zeros(40, 3)); c = Variable(x.data.new(2, 3).zero_()); return (y.sum(0) + x + c).relu()", "torch.randn(2, 3)"),
    "numbers of numpy beside a tensor": ("import numpy as np; self.o = np.array([1, 2, 3])", "return x.relu() + x.new_tensor(self.o).unsqueeze(0)", "torch.randn(2, 3)"),
    "dropout after all of a part": ("self.f, self.d = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3)), nn.Dropout(0.0)", "return self.d(self.f(x))", "torch.randn(2, 3)"),
    "dropout before all of a part": ("self.f = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3), nn.Linear(3, 3), nn.LayerNorm(3))", "return self.f(F.dropout(x, 0.1, self.training))", "torch.randn(2, 3)"),
    "an argument called as a function of Python": ("self.f = nn.Linear(3, 3)", "return (lambda input: self.f(input) if input.sum() > 0 else input)(x)", "torch.randn(2, 3)"),
    "a function that is scripted when the model is made": ("def root(x): return torch.sqrt(torch.tensor(x.size(-1), dtype=torch.float) * 3)\n        self.root = torch.jit.script(root)", "return (x / self.root(x)).relu()", "torch.randn(2, 3)"),
    "a table of places that a layer reads": ("self.e = nn.Embedding(5, 3); self.register_buffer('i', torch.arange(25).view(5, 5) % 5)", "return (self.e(self.i).sum(0) + x.mean()).relu()", "torch.randn(2, 3)"),
    "shares of a length that a buffer has": ("self.register_buffer('r', torch.rand(40))", "i = (self.r * x.size(1)).long(); return x[:, i].exp() + x.relu().sum()", "torch.randn(2, 3)"),
    "what would not end well below zero": ("self.register_buffer('b', torch.rand(3, 40) * 0.01); self.s = nn.Parameter(torch.full((3,), -3.0))", "y = torch.log1p(F.linear(x.abs(), self.b) / 1e-6); s = self.s.exp()\n        for t in range(99): y = (1 - 2 * s) * y + s * y.mean()\n        return y.sqrt()", "torch.randn(2, 40)"),
    "weights from elsewhere": ("self.e = nn.Embedding(4, 3); self.register_buffer('i', torch.arange(4)); self.e.weight.data = torch.ones(4, 300000)[:, :3] * 2", "return (x @ self.e(self.i).t()).relu()", "torch.randn(2, 3)"),
    "a tensor that is written under another name": ("self.f = nn.Linear(3, 3)", "y = self.f(x).tanh(); z = y.mean(0, True).expand(2, 3).clone()\n        def put(into): into[torch.arange(2)] = y.exp(); return into\n        w = put(z); return w.relu() + self.f(x)", "torch.randn(2, 3)"),
    "a size that is a tensor": ("self.f = nn.Linear(3, 3)", "n = torch.div(torch.tensor(x.size(0)), 2, rounding_mode='trunc'); y = self.f(x).relu(); z = y.new_zeros((n + 1, 3)).view(y.size(0) - 1, 3); return self.f(z.exp() + y.sum()).relu()", "torch.randn(4, 3)"),
}  # fmt: skip


@pytest.fixture(scope="module")
def prover() -> Iterator[Prover]:
    with Prover(2) as one:
        yield one


def inside(init: str, forward: str, inputs: str) -> str:
    """A model with a layer that has the habit."""
    layer = f"""
class Part(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x):
        {forward}
"""
    return source("self.part = Part()", "return self.part(x + 0), x.relu()", inputs, before=layer)


@pytest.mark.parametrize("habit", HABITS)
def test_it_is_decomposed_and_proven(habit: str, tmp_path: Path, prover: Prover) -> None:
    code = inside(*HABITS[habit])
    write_model(tmp_path / "net", files(code), code)
    proof = prove_folder(tmp_path / "net", prover)
    assert (proof.status, proof.lines, proof.coverage) == ("PASS", [], 100.0)


KNOWN = "y = torch.ones(700, 700) * x.size(0); return x.relu() if (y < 0).any().item() else x.exp() * y.sum()"


def test_python_may_look_at_a_large_mask_that_no_input_is_in() -> None:
    made = files(inside("pass", KNOWN, "torch.randn(2, 3)"))
    assert not any("class Part" in text for name, text in made.items() if name.startswith("level_0_kernel/"))


def test_a_tensor_by_another_name_is_no_reason_to_keep_a_part_whole() -> None:
    made = files(inside(*HABITS["a tensor by another name"]))
    assert not any("class Part" in text for name, text in made.items() if name.startswith("level_0_kernel/"))


MADE_WITH = """
class Way(enum.IntEnum):
    UP = 0
    DOWN = 1


@dataclasses.dataclass
class Sizes:
    width: int = 3
    ways: tuple = (Way.UP,)


@dataclasses.dataclass
class Result:
    rows: torch.Tensor
    rest: list


class Part(nn.Module):
    def __init__(self, sizes, way, more, rate):
        super().__init__()
        self.f, self.up = nn.Linear(sizes.width, 3), way is Way.UP and way in sizes.ways and more["a"]

    def forward(self, x):
        y = self.f(x)
        return y[y.sum(1) > (-9 if self.up else 9)].sum(0)


class Both(nn.Module):
    def forward(self, x):
        return Result(x.relu(), [x.exp()])
"""


def test_parts_are_made_again_with_the_objects_that_they_are_made_with(
    tmp_path: Path, prover: Prover
) -> None:
    code = "import dataclasses\nimport enum\n\nimport numpy as np\n\n" + source(
        "self.part = Part(Sizes(ways=(Way.DOWN, Way.UP)), Way.UP, {'a': 1}, np.linspace(0, 1, 3)[1]); self.both = Both()",
        "y = self.part(x + 0); both = self.both(x * 2); return Result(y, [both.rows + 1, both.rest[0].tanh()])",
        "torch.randn(2, 3)",
        before=MADE_WITH,
    )
    made = files(code)
    kept = [text for name, text in made.items() if name.startswith("level_0_kernel/") and "Part(" in text]
    assert len(kept) == 1
    assert "Part(Sizes(ways=(Way.DOWN, Way.UP)), Way.UP," in kept[0]
    write_model(tmp_path / "net", made, code)
    proof = prove_folder(tmp_path / "net", prover)
    assert (proof.status, proof.lines, proof.coverage) == ("PASS", [], 100.0)


PACKED = """
class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.GRU(3, 3, batch_first=True)

    def forward(self, x, lengths):
        return self.f(nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True))[1]
"""


def test_a_part_that_is_kept_whole_gets_whole_numbers_such_as_it_got(tmp_path: Path, prover: Prover) -> None:
    code = source(
        "self.part = Part()",
        "return self.part(x, (x.abs().sum((1, 2)) > 0).long() + torch.tensor([3, 1])).relu()",
        "torch.randn(2, 4, 3)",
        before=PACKED,
    )
    made = files(code)
    write_model(tmp_path / "net", made, code)
    proof = prove_folder(tmp_path / "net", prover)
    assert (proof.status, proof.lines, proof.coverage) == ("PASS", [], 100.0)


def test_what_is_imported_and_not_used_is_no_reason_to_refuse(tmp_path: Path, prover: Prover) -> None:
    code = "import numpy as np\n" + source(
        "pass", "return x.relu() if x.sum() > 0 else x", "torch.randn(2, 3)"
    )
    made = files(code)
    assert "numpy" in made["verification/original.py"]
    assert not any("numpy" in text for name, text in made.items() if name.startswith("level_0_kernel/"))
    write_model(tmp_path / "net", made, code)
    assert prove_folder(tmp_path / "net", prover).status == "PASS"


@pytest.mark.parametrize("square", ["x.pow(2)", "x * x"])
def test_what_is_squared_before_its_root_may_be_below_zero(square: str) -> None:
    norm = f"return (x * torch.rsqrt(({square}).mean(-1, True) + 1e-6)).tanh()"
    made = files(inside("pass", norm, "torch.randn(2, 3)"))
    assert [path for path, text in made.items() if path.startswith("level_0") and "torch.randn(2, 3)" in text]
    assert not [
        path for path, text in made.items() if path.startswith("level_") and "torch.rand(2, 3)" in text
    ]


def test_room_that_a_part_fills_in_part_is_zeros_in_it() -> None:
    made = files(inside(*HABITS["room that is filled bit by bit"]))
    assert not [path for path, text in made.items() if path.startswith("level_0") and "torch.empty" in text]


def test_a_layer_whose_weight_is_used_by_itself_is_written_once() -> None:
    made = files(inside(*HABITS["a weight by itself and in its layer"]))
    layer = next(text for path, text in made.items() if path.startswith("level_2"))
    assert "nn.Embedding" in layer
    assert "nn.Parameter" not in layer


COUNTING = """
class CountingNorm(nn.BatchNorm2d):
    def forward(self, x):
        if self.training and self.track_running_stats:
            self.num_batches_tracked.add_(1)
        batch = self.training or self.running_mean is None
        y = F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, batch, self.momentum, self.eps)
        return F.relu(y)
"""


def test_a_norm_that_counts_its_batches_is_proven_in_train_mode(tmp_path: Path, prover: Prover) -> None:
    code = source(
        "self.conv, self.norm = nn.Conv2d(3, 4, 3), CountingNorm(4)",
        "return self.norm(self.conv(x)).sigmoid()",
        "torch.randn(2, 3, 6, 6)",
        before=COUNTING,
    )
    write_model(tmp_path / "net", files(code), code)
    proof = prove_folder(tmp_path / "net", prover)
    assert (proof.status, proof.lines) == ("PASS", [])
    result = json.loads((tmp_path / "net/verification/test_results.json").read_text())
    assert result["numerical_comparison"]["train"].startswith("PASS")


def test_what_a_package_remembers_of_one_run_does_not_come_into_the_next() -> None:
    """einops keeps the sizes that it has computed, and those remember of which tensor they are."""
    pytest.importorskip("einops")
    forward = """y = self.fc(rearrange(x, 'b h w -> b w h').relu())
        return rearrange(torch.softmax(y, -1), 'b (p w) h -> b p w h', p=2).sigmoid() * 2"""
    code = "from einops import rearrange\n" + source(
        "self.fc = nn.Linear(8, 8)", forward, "torch.rand(2, 8, 8)"
    )
    first, second = files(code), files(code)
    for made in (first, second):
        made.pop("decomposition_tree.json")  # it has the time
    assert first == second


def test_a_first_call_with_an_empty_tensor_is_no_example() -> None:
    forward = "e = torch.ones(0, 8) @ self.w; return torch.cat([torch.sigmoid(e), torch.sigmoid(x @ self.w)])"
    made = files(source("self.w = nn.Parameter(torch.randn(8, 8))", forward, "torch.rand(4, 8)"))
    sigmoid = made["level_0_kernel/sigmoid_fp32.py"]
    assert "torch.randn(4, 8)" in sigmoid
    assert "torch.randn(0, 8)" not in sigmoid
