"""What a lazy or dishonest author of a tree might try, beyond plain mistakes: none of it is proven."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelmill.decompose.prove.prover import Prover, prove_folder
from kernelmill.decompose.prove.rules.child import child_violations
from kernelmill.torch_calls.snapshot import TorchSnapshot
from tests.decompose.trees import edit, one_step, problem, write, write_tree

ACT = "level_0_kernel/leaky_relu_fp32.py"
ROWS = "torch.randn(4, 8)"
CLASS = "class Model(nn.Module):"


@pytest.fixture(scope="module")
def prover() -> Iterator[Prover]:
    with Prover(workers=2, timeout=20, memory_mb=2048) as made:
        yield made


def lines_of(folder: Path, prover: Prover) -> list[str]:
    """Why it is not proven."""
    proof = prove_folder(folder, prover)
    assert (proof.status == "PASS") == (not proof.lines)
    return proof.lines


def edit_nodes(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = folder / "decomposition_tree.json"
    tree = json.loads(path.read_text(encoding="utf-8"))
    change(tree["nodes"])
    write(path, json.dumps(tree))


# -------------------------------------------------------------------------------------- out of the child, into the prover

WAYS_OUT = {
    "torch under another name": "t = torch\nt.equal = lambda a, b: True",
    "a class under another name": "t = nn.Linear\nt.forward = None",
    "torch in a list": "for t in [F]:\n    t.relu = None",
    "an argument that is called self": "def f(self, name):\n    return getattr(self, name)\n\n\nX = f(nn.Linear, 'x')",
    "getattr under another name": "g = getattr",
    "getattr with a name that is made": "def f(self):\n    return getattr(self, f'{1}sys')",
    "attributes by a pattern": "match nn.Linear:\n    case object(__init__=X, sys=Y):\n        pass",
    "names of the module": "X = locals()['__builtins__']",
    "a generator's frame": "G = []\n\n\ndef g():\n    yield G[0].gi_frame.f_back",
    "builtins by enum": "import enum\nX = enum.bltns",
    "sys by collections": "import collections\nX = collections._sys",
    "text that typing evaluates": "from typing import get_type_hints",
    "attributes that functools sets": "import functools\nfunctools.update_wrapper(nn.Linear, Model, ('forward',))",
    "more attributes that functools sets": "from functools import wraps\nwraps(Model, ('forward',))(nn.Linear)",
    "code that dataclasses make": "from dataclasses import make_dataclass",
    "code that torch.fx makes": "from torch.fx.graph_module import _exec_with_source",
    "hooks of all modules": "nn.modules.module.register_module_forward_hook(print)",
    "kernels for torch's own operations": "X = torch.library.Library('aten', 'IMPL')",
    "a file that torch reads": "X = torch.from_file('original.py')",
    "another default": "torch.set_default_dtype(torch.float64)",
    "numpy by torch": "X = F.np",
    "a tensor of its own kind": "class T(torch.Tensor):\n    pass",
    "a method that torch calls": "class T:\n    def __torch_function__(self):\n        pass",
    "a class with a metaclass": "class T(metaclass=type):\n    pass",
    "a private part of torch": "X = torch._utils",
    "an argument of another function": "def f(x, g=lambda eval: 0):\n    return eval(x)",
    "an argument's default": "def f(eval=eval):\n    pass",
    "a name that a class inside looks for outside": "def f(eval):\n    class C:\n        if 0:\n            eval = 1\n        x = eval('1')",
    "a name that is global after all": "def f(eval):\n    def g():\n        global eval\n        return eval('1')",
}


@pytest.mark.parametrize("way", WAYS_OUT)
def test_a_child_that_reaches_for_more_than_a_computation_is_refused(way: str) -> None:
    good = problem("", "F.relu(x0)", "torch.rand(2)")
    assert child_violations(good) == []
    assert child_violations(good.replace(CLASS, f"{WAYS_OUT[way]}\n\n\n{CLASS}")) != []


@pytest.mark.parametrize(
    "code",
    [
        "import copy\nfrom torch.func import functional_call, vmap\ny = [copy.deepcopy(z) for z in range(2)]",
        "x = torch._weight_norm(x, x, 0)",
        "import math\nimport functools\nfrom typing import Optional\nfrom collections import OrderedDict\nX = math.pi",
        "import torch.utils.checkpoint\nX = torch.utils.checkpoint.checkpoint",
        "from torch.nn.modules.utils import _pair\nfrom torch.nn.utils.rnn import pad_sequence\nX = torch.linalg.norm",
        "def f(self, i):\n    self.x = i\n    return getattr(self, f'layer{i}'), getattr(self, 'head', None)",
        "import functools\n\n\ndef f(g):\n    @functools.wraps(g)\n    def h(x):\n        return g(x)\n\n    return h",
        "class Attention(nn.Module):\n    def __call__(self, x):\n        return torch.ops.aten.relu.default(x)",
        "from torch import Tensor, nn\nX = torch.fft.rfft\nY = torch.amp.autocast",
        "def f(input, *vars):\n    return [input.sum() for _ in vars] + (lambda open: [open])(input)",
    ],
)
def test_what_sources_of_models_do_is_allowed(code: str) -> None:
    assert (
        child_violations(problem("", "F.relu(x0)", "torch.rand(2)").replace(CLASS, f"{code}\n\n\n{CLASS}"))
        == []
    )


def test_a_run_that_changes_torch_by_a_way_that_was_not_seen_fails(tmp_path: Path, prover: Prover) -> None:
    folder = write_tree(tmp_path / "net")
    patch = "class Z:\n    def put(self):\n        self.forward = lambda m, x: x\n\n\nZ.put(nn.GELU)"
    edit(folder, ACT, CLASS, f"{patch}\n\n\n{CLASS}")
    assert [
        line
        for line in lines_of(folder, prover)
        if "the run changed torch.nn.modules.activation:GELU.forward" in line
    ]


def test_methods_that_are_added_and_hooks_are_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    before = TorchSnapshot()
    assert before.changes() == []
    monkeypatch.setattr(torch.nn.Linear, "__call__", lambda self, x: x, raising=False)
    monkeypatch.setattr(torch, "equal", lambda a, b: True)
    with torch.nn.modules.module.register_module_forward_hook(lambda *_: None):
        found = before.changes()
    assert found == [
        "torch.equal",
        "torch.nn.modules.linear:Linear.__call__",
        "torch's _global_forward_hooks",
    ]


# ------------------------------------------------------------------------------------------- what numbers do not bring out


def halves(first: str, second: str, dtype: str = "float32", rows: str = ROWS) -> tuple[str, str, str]:
    """The whole, and its two kernels. Each is an expression of x0."""
    cast = "" if dtype == "float32" else f".to(torch.{dtype})"
    whole = second.replace("x0", f"({first})")
    return tuple(problem("", code, f"{rows}{cast}") for code in (whole, first, second))  # type: ignore[return-value]


def proven(
    folder: Path,
    whole: str,
    one: str,
    two: str,
    prover: Prover,
    size: list[int] | None = None,
    dtype: str = "float32",
) -> list[str]:
    tree = one_step(folder, whole, {"one": one, "two": two}, "return self.two(self.one(x))", {}, size, dtype)
    return lines_of(tree, prover)


def test_an_argument_that_no_input_brings_out_has_to_be_right(tmp_path: Path, prover: Prover) -> None:
    whole, one, two = halves("torch.tanh(x0)", "torch.clamp(x0, max=100.0)")
    assert proven(tmp_path / "right", whole, one, two, prover) == []
    said = proven(tmp_path / "wrong", whole, one, two.replace("100.0", "90.0"), prover)
    assert [line for line in said if "no child has clamp(max=100.0) x1, but clamp(max=90.0)" in line], said


def test_an_argument_that_a_coarse_type_rounds_away_has_to_be_right(tmp_path: Path, prover: Prover) -> None:
    whole, one, two = halves("torch.sin(x0)", "F.leaky_relu(x0, 0.01)", "bfloat16")
    assert proven(tmp_path / "right", whole, one, two, prover, dtype="bfloat16") == []
    assert (
        proven(tmp_path / "wrong", whole, one, two.replace("0.01", "0.012"), prover, dtype="bfloat16") != []
    )


@pytest.mark.parametrize("more", ["1.01", "1"])
def test_an_operation_too_many_fails_whether_or_not_it_changes_a_bit(
    more: str, tmp_path: Path, prover: Prover
) -> None:
    whole, one, two = halves("torch.sin(x0)", "torch.exp(x0)", "bfloat16")
    two = two.replace("x0)\n", f"x0) * {more}\n")
    said = proven(tmp_path, whole, one, two, prover, dtype="bfloat16")
    assert [line for line in said if "the original has no mul" in line], said
    assert bool([line for line in said if "not the same bit for bit" in line]) == (more == "1.01"), said


@pytest.mark.parametrize(
    "wrong",
    [
        "torch.exp(x0) * (2.0 if x0.shape[0] > 5000 else 1.0)",
        "torch.exp(x0 * 1.0 if x0.shape[0] < 5000 else x0.flip(0) * 1.0)",
        "torch.exp(x0.sub(x0 * 0) if x0.shape[0] < 5000 else (x0 * 0).sub(x0))",
    ],
)
def test_a_part_that_is_wrong_at_full_size_only_fails(wrong: str, tmp_path: Path, prover: Prover) -> None:
    rows = "torch.randn(40_000, 16_384)"
    whole, one, _ = halves("torch.sin(x0)", "torch.exp(x0)", rows=rows)
    two = problem("", wrong, rows)
    said = proven(tmp_path, whole, one, two, prover, [40_000, 16_384])
    assert [line for line in said if "at full size the refactored does other operations" in line], said


def test_a_number_that_is_another_in_train_mode_fails(tmp_path: Path, prover: Prover) -> None:
    whole, one, two = halves("torch.sin(x0)", "torch.exp(x0)")
    said = proven(tmp_path, whole, one, two.replace("x0)\n", "x0) * (2 if self.training else 1)\n"), prover)
    assert [line for line in said if "train mode" in line], said


# ------------------------------------------------------------------------------------------------- inputs that hide, or lie


def test_inputs_that_are_all_the_same_do_not_hide_what_is_wrong(tmp_path: Path, prover: Prover) -> None:
    # With zeros it does not matter which weight is which.
    layers = "self.a = nn.Linear(8, 8, bias=False)\n        self.b = nn.Linear(8, 8)"
    zeros = "torch.randn(4, 8) * 0"
    whole = problem(layers, "torch.sigmoid(self.b(self.a(x0)))", zeros)
    plain = problem("self.linear = nn.Linear(8, 8, bias=False)", "self.linear(x0)", ROWS)
    last = problem("self.linear = nn.Linear(8, 8)", "torch.sigmoid(self.linear(x0))", ROWS)
    weights = {"one.linear.weight": "a.weight", "two.linear.weight": "b.weight", "two.linear.bias": "b.bias"}
    kernels, forward = {"one": plain, "two": last}, "return self.two(self.one(x))"
    assert lines_of(one_step(tmp_path / "right", whole, kernels, forward, weights), prover) == []
    swapped = weights | {"one.linear.weight": "b.weight", "two.linear.weight": "a.weight"}
    said = lines_of(one_step(tmp_path / "wrong", whole, kernels, forward, swapped), prover)
    assert [line for line in said if "drawn inputs: output differs" in line], said


@pytest.mark.parametrize("how", ["unsqueeze_(1).squeeze_(1)", "transpose_(0, 1).t_()"])
def test_a_view_in_place_may_be_a_plain_one_in_a_child(how: str, tmp_path: Path, prover: Prover) -> None:
    whole = problem("", f"torch.sigmoid((x0 + 1).{how})", ROWS)
    kernels = {
        "one": problem("", "x0 + 1", ROWS),
        "two": problem("", f"torch.sigmoid(x0.{how.replace('_(', '(')})", ROWS),
    }
    assert lines_of(one_step(tmp_path, whole, kernels, "return self.two(self.one(x))", {}), prover) == []


def test_no_inputs_are_drawn_where_there_are_no_floats(tmp_path: Path, prover: Prover) -> None:
    whole = problem("", "torch.sort(x0 + 1).values", "torch.randint(0, 9, (4, 8))")
    kernels = {
        "one": problem("", "x0 + 1", "torch.randint(0, 9, (4, 8))"),
        "two": problem("", "torch.sort(x0).values", "torch.randint(0, 9, (4, 8))"),
    }
    folder = one_step(tmp_path, whole, kernels, "return self.two(self.one(x))", {}, dtype="int64")
    assert lines_of(folder, prover) == []
    result = json.loads((folder / "verification/test_results.json").read_text())["numerical_comparison"]
    assert result["drawn_inputs"].startswith("not needed (no input has floats")
    assert [trial["pass"] for trial in result["trials"]] == [True] * 3


@pytest.mark.parametrize(
    ("inputs", "size", "dtype"),
    [("torch.randn(1, 1)", [1, 1], "float32"), ("torch.randn(4, 8, 6, 6).double()", [4, 8, 6, 6], "float64")],
)
def test_a_file_whose_inputs_are_not_those_of_the_model_fails(
    inputs: str, size: list[int], dtype: str, tmp_path: Path, prover: Prover
) -> None:
    folder = write_tree(tmp_path / "net")
    edit(folder, ACT, "torch.randn(4, 8, 6, 6)", inputs)
    lie = {"input_shapes": [size], "output_shapes": [size], "input_dtypes": [dtype], "output_dtypes": [dtype]}
    edit_nodes(folder, lambda nodes: nodes["leaky_relu_fp32"].update(lie))
    said = lines_of(folder, prover)
    assert [
        line for line in said if line.startswith(ACT) and "the model uses it with float32[4, 8, 6, 6]" in line
    ], said


# ------------------------------------------------------------------------------------------------ the tree itself


def test_a_link_is_not_followed_and_nothing_is_written_through_it(tmp_path: Path, prover: Prover) -> None:
    outside = tmp_path / "outside"
    write(outside / "verification_result.json", "mine")
    write(outside / "file", "mine")
    folder = write_tree(tmp_path / "net")
    (folder / "steps/more").symlink_to(outside)
    (folder / ".decomposition_tree.json.tmp").symlink_to(outside / "file")
    assert [line for line in lines_of(folder, prover) if "steps/more is a link" in line]
    assert {path.read_text(encoding="utf-8") for path in outside.iterdir()} == {"mine"}
    tree = json.loads((folder / "decomposition_tree.json").read_text(encoding="utf-8"))
    assert tree["metadata"]["verification_status"] == "ERROR"


def test_counts_have_to_be_right(tmp_path: Path, prover: Prover) -> None:
    folder = write_tree(tmp_path / "net")
    edit_nodes(folder, lambda nodes: nodes["linear_8x8_fp32"].update(instance_count=30))
    assert [
        line
        for line in lines_of(folder, prover)
        if "linear_8x8_fp32 is used 3 times, the tree says 30" in line
    ]
    folder = write_tree(tmp_path / "other")
    edit(
        folder,
        "decomposition_tree.json",
        '"root": "net"',
        '"root": "net", "total_components": 99, "by_level": {"kernel": 2}',
    )
    said = lines_of(folder, prover)
    assert [line for line in said if "says total_components 99, there are 9" in line], said
    assert [line for line in said if "says by_level {'kernel': 2}, there are" in line], said
