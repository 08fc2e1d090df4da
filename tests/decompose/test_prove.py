"""Wrong decompositions are caught, and it is said why; a good one passes."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelmill.cli import main as kernelmill
from kernelmill.decompose.prove import prover as prove_module
from kernelmill.decompose.prove.prover import Proof, Prover, prove_folder
from kernelmill.decompose.prove.rules.child import child_violations
from kernelmill.decompose.prove.rules.parent import Parent
from tests.decompose.trees import CHILDREN, STEPS, edit, edit_map, one_step, problem, write, write_tree

CONV = "level_0_kernel/conv2d_3x8_k3_fp32.py"
NORM = "level_0_kernel/batchnorm2d_8_fp32.py"
ACT = "level_0_kernel/leaky_relu_fp32.py"
MEAN = "level_0_kernel/mean_fp32.py"
LINEAR = "level_0_kernel/linear_8x8_fp32.py"
ADD = "level_0_kernel/add_fp32.py"
ROOT, BLOCK, MLP = (f"steps/{step}" for step in STEPS)


@pytest.fixture(scope="module")
def prover() -> Iterator[Prover]:
    with Prover(workers=2, timeout=3, memory_mb=2048) as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_tree(tmp_path / "net")


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def status_of(folder: Path, claim: str) -> str:
    name = "test_results.json" if claim == "verification" else "verification_result.json"
    return str(read(folder / claim / name)["status"])


def test_a_good_tree_is_proven_and_every_result_file_says_so(folder: Path, prover: Prover) -> None:
    proof = prove_folder(folder, prover)
    assert (proof.status, proof.lines, proof.passed, proof.steps) == ("PASS", [], 3, 3)
    assert (proof.composition, proof.coverage, proof.reduced) == ("PASS", 100.0, False)
    assert read(folder / "decomposition_tree.json")["metadata"]["verification_status"] == "PASS"
    for claim in (ROOT, BLOCK, MLP):
        result = read(folder / claim / "verification_result.json")
        assert result["anticheat"] == {
            "status": "PASS", "source_violations": [], "parameter_violations": [], "runtime_violations": []
        }  # fmt: skip
        assert result["weight_transfer"]["status"] == "PASS"
        numbers = result["numerical_comparison"]
        assert numbers["status"] == "PASS"
        assert [trial["pass"] for trial in numbers["trials"]] == [True] * 3
        assert len({trial["seed"] for trial in numbers["trials"]}) == 3
        tried = [(trial["input_scale"], trial["gradients"]) for trial in numbers["trials"]]
        assert tried == [(1.0, False), (1.0, True), (0.01, False)]
        assert numbers["bitwise_equal"]
        assert read(folder / claim / "coverage_report.json")["status"] == "FULL_COVERAGE"
    whole = read(folder / "verification/test_results.json")
    assert whole["numerical_comparison"]["train"].startswith("PASS")
    assert whole["weight_transfer"]["mapped_count"] == 12
    coverage = read(folder / "verification/coverage_summary.json")["coverage"]
    assert coverage["total_original_ops"] == coverage["covered_op_count"] == coverage["total_decomposed_ops"]
    summary = read(folder / "verification/step_verification_summary.json")
    assert (summary["status"], summary["passed"], summary["level_files"]["checked"]) == ("PASS", 3, 9)


@pytest.mark.parametrize(
    ("forward", "large"),
    [
        ("return self.relu(x), self.tanh(x)", "not needed (the same operations in the same order)"),
        ("second = self.tanh(x)\n        return self.relu(x), second", "PASS (seed 2718)"),
    ],
)
def test_trials_have_gradients_and_small_inputs_and_large_ones_where_the_order_is_another(
    tmp_path: Path, prover: Prover, forward: str, large: str
) -> None:
    folder = one_step(
        tmp_path / "net",
        problem("", "(torch.relu(x0), torch.tanh(x0))", ROWS),
        {"relu": problem("", "torch.relu(x0)", ROWS), "tanh": problem("", "torch.tanh(x0)", ROWS)},
        forward,
        {},
    )
    tree = read(folder / "decomposition_tree.json")
    for kind in ("shapes", "dtypes"):
        tree["nodes"]["root"][f"output_{kind}"] *= 2
    (folder / "decomposition_tree.json").write_text(json.dumps(tree))
    proof = prove_folder(folder, prover)
    assert (proof.status, proof.lines) == ("PASS", [])
    for result in ("steps/step_1_root/verification_result.json", "verification/test_results.json"):
        numbers = read(folder / result)["numerical_comparison"]
        tried = [(trial["input_scale"], trial["gradients"]) for trial in numbers["trials"]]
        assert tried == [(1.0, False), (1.0, True), (0.01, False)]
        assert numbers["large_inputs"] == large


Mutation = Callable[[Path], None]


def changed(path: str, old: str, new: str) -> Mutation:
    return lambda folder: edit(folder, path, old, new)


def mapped(where: str, **change: str | None) -> Mutation:
    return lambda folder: edit_map(
        folder, where, {name.replace("__", "."): to for name, to in change.items()}
    )


def both(*mutations: Mutation) -> Mutation:
    def mutate(folder: Path) -> None:
        for mutation in mutations:
            mutation(folder)

    return mutate


COMPOSITION = "verification/composition_test.py"
WRONG: dict[str, tuple[Mutation, str]] = {
    "an operation is dropped in a parent": (
        changed(f"{BLOCK}/refactored.py", "return self.act(x)", "return x"),
        "an operation of the original is in no child: aten.leaky_relu x1",
    ),
    "an operation is dropped in the composition": (
        changed(COMPOSITION, "self.act(self.norm(self.conv(x)))", "self.act(self.conv(x))"),
        "is in no child",
    ),
    "an operation is dropped in a kernel": (changed(ADD, "x0 + x1", "x0.clone()"), "aten.add"),
    "two weights of one shape are swapped": (
        mapped(MLP, one__linear__weight="two.weight", two__linear__weight="one.weight"),
        "differs in",
    ),
    "two biases of one shape are swapped": (
        mapped("verification", one__linear__bias="fc2.bias", two__linear__bias="fc1.bias"),
        "differs in",
    ),
    "mean and variance are swapped": (
        mapped(BLOCK, norm__norm__running_mean="norm.running_var", norm__norm__running_var="norm.running_mean"),
        "differs in",
    ),
    "children are reordered": (
        changed(f"{BLOCK}/refactored.py", "x = self.norm(x)\n        return self.act(x)", "x = self.act(x)\n        return self.norm(x)"),
        "differs in",
    ),
    "an eps is changed": (changed(NORM, "eps=1e-5", "eps=1e-6"), "differs in"),
    "a momentum is changed": (changed(NORM, "eps=1e-5", "eps=1e-5, momentum=0.2"), "train mode"),
    "a slope is changed": (changed(ACT, "0.01", "0.02"), "differs in"),
    "padding has another mode": (changed(CONV, "padding=1)", "padding=1, padding_mode='circular')"), "steps/step_2"),
    "stride and dilation keep the shape": (changed(CONV, "padding=1)", "padding=2, dilation=2)"), "differs in"),
    "an operation is another": (changed(MEAN, "mean", "amax"), "is in no child: aten.mean x1"),
    "an input is changed in place": (
        changed(ADD, "x0 + x1", "x1.add_(x0)"),
        "input[0][0] differs",
    ),
    "a constant stands for a weight that is still mapped": (
        changed(LINEAR, "self.linear(x0)", "F.linear(x0, torch.full((8, 8), 0.5), self.linear.bias)"),
        "differs in",
    ),
    "a constant that the first run makes stands for a weight": (
        changed(LINEAR, "self.linear(x0)", "F.linear(x0, self.linear.weight, getattr(self, 'b', self.linear.bias * 0 + 0.5))"),
        "differs in",
    ),
    "the first result is given ever after": (
        changed(LINEAR, "return self.linear(x0)", "self.y = getattr(self, 'y', self.linear(x0))\n        return self.y"),
        "y of the refactored is not in the weight map",
    ),
    "a constant stands for a weight": (
        both(
            changed(LINEAR, "self.linear = nn.Linear(inner, outer)", "self.linear = torch.full((8, 8), 0.5)"),
            changed(LINEAR, "self.linear(x0)", "F.linear(x0, self.linear, self.linear[0])"),
            mapped(MLP, one__linear__weight=None, one__linear__bias=None, two__linear__weight=None, two__linear__bias=None),
        ),
        "the original reads one.weight, which is not in the weight map",
    ),
    "a weight that is read is not mapped": (
        both(
            changed(LINEAR, "nn.Linear(inner, outer)", "nn.Linear(inner, outer, bias=False)"),
            mapped(MLP, one__linear__bias=None, two__linear__bias=None),
        ),
        "the original reads one.bias, which is not in the weight map",
    ),
    "the map lacks an entry": (
        mapped(ROOT, mlp__one__bias=None),
        "mlp.one.bias of the refactored is not in the weight map",
    ),
    "the map names nothing of the refactored": (
        mapped(ROOT, mlp__three__bias="fc1.bias"),
        "the weight map names mlp.three.bias, which the refactored does not have",
    ),
    "the map names nothing of the original": (
        mapped(ROOT, mlp__one__bias="fc9.bias"),
        "the weight map names fc9.bias, which the original does not have",
    ),
    "the map pairs other shapes": (mapped(ROOT, mlp__one__bias="conv.weight"), "conv.weight is float32[8, 3, 3, 3]"),
    "a tied weight is mapped to another": (mapped("verification", head__linear__weight="fc2.weight"), "differs in"),
    "a child is not the tree's file": (
        changed(f"{BLOCK}/children/leaky_relu_fp32.py", "0.01", "0.010"),
        "children/leaky_relu_fp32.py is not the file of the tree",
    ),
    "a child imports the original": (
        changed(ACT, "import torch.nn.functional as F", "import torch.nn.functional as F\nimport original"),
        "it imports original",
    ),
    "a child imports another child": (
        changed(ACT, "import torch.nn.functional as F", "import torch.nn.functional as F\nfrom children import mean_fp32"),
        "it imports children",
    ),
    "a child gets at the original through torch": (
        changed(ACT, "F.leaky_relu(x0, 0.01)", "torch.sys.modules['original'].F.leaky_relu(x0, 0.01)"),
        "it reaches for torch.sys",
    ),
    "a child changes torch": (
        changed(ACT, "class Model(nn.Module):", "torch.equal = lambda a, b: True\n\n\nclass Model(nn.Module):"),
        "it changes torch.equal",
    ),
    "a kernel has children of its own": (
        lambda folder: edit(folder, "decomposition_tree.json", '"level": "fusion"', '"level": "kernel"'),
        "not a file of level_0_kernel",
    ),
    "the tree says another shape": (
        lambda folder: _edit_tree(folder, lambda nodes: nodes["mean_fp32"].update(output_shapes=[[8, 4]])),
        "the tree says float32[8, 4]",
    ),
    "the tree says another type": (
        lambda folder: _edit_tree(folder, lambda nodes: nodes["net"].update(output_dtypes=["float16"] * 3)),
        "the tree says float16[4, 8]",
    ),
    "a file is no node's": (
        lambda folder: write(folder / "level_0_kernel/more.py", problem("", "x0", "torch.rand(2)")),
        "level_0_kernel/more.py is no node's file",
    ),
    "the tree says another instance": (
        lambda folder: _edit_tree(
            folder, lambda nodes: nodes["net"].update(instances=[{"child": "mean_fp32", "attribute": "block"}])
        ),
        "block is conv_norm_act_fp32, the tree says mean_fp32",
    ),
    "a step is missing": (lambda folder: _edit_tree(folder, lambda nodes: nodes["net"].update(step="steps/none")), "no step"),
    "a kernel does not parse": (changed(ACT, "return F", "return return F"), "it does not parse"),
    "a weight map is no map": (
        lambda folder: write(folder / f"{MLP}/weight_map.json", "[]"), "weight_map.json is no weight map"
    ),
}  # fmt: skip


def _edit_tree(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    tree = read(folder / "decomposition_tree.json")
    change(tree["nodes"])
    write(folder / "decomposition_tree.json", json.dumps(tree))


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_tree_fails_and_says_why(name: str, folder: Path, prover: Prover) -> None:
    mutate, reason = WRONG[name]
    mutate(folder)
    proof = prove_folder(folder, prover)
    assert proof.status in ("FAIL", "ERROR")
    assert [line for line in proof.lines if reason in line], proof.lines
    assert read(folder / "decomposition_tree.json")["metadata"]["verification_status"] == proof.status


def test_the_original_pasted_as_a_child_fails_under_other_names_too(folder: Path, prover: Prover) -> None:
    fusion = (folder / "level_1_fusion/residual_mlp_fp32.py").read_text(encoding="utf-8")
    pasted = fusion.replace("one", "first").replace("x0", "value").replace("two", "second")
    for child in CHILDREN["residual_mlp_fp32"]:
        write(folder / f"{MLP}/children/{child}.py", pasted)
    proof = prove_folder(folder, prover)
    assert status_of(folder, MLP) == "FAIL"
    assert [line for line in proof.lines if "is the original" in line]
    assert status_of(folder, BLOCK) == "PASS", "the other claims go on"


def test_a_child_that_does_everything_fails_beside_one_that_does_nothing(
    tmp_path: Path, prover: Prover
) -> None:
    drop = problem("self.drop = nn.Dropout(0.0)", "self.drop(x0)", ROWS)
    linear = problem("self.linear = nn.Linear(8, 8)", "torch.tanh(self.linear(x0 + 0 * 1.0))", ROWS)
    original = problem("self.linear = nn.Linear(8, 8)", "torch.tanh(self.linear(x0))", ROWS)
    forward = "return self.drop(self.linear(x))"
    folder = one_step(tmp_path, original, {"linear": linear, "drop": drop}, forward, WEIGHTS)
    proof = prove_folder(folder, prover)
    assert proof.status == "FAIL"
    assert [line for line in proof.lines if "everything is computed in one child, linear" in line]


def test_a_child_that_is_called_again_and_again_is_no_whole(tmp_path: Path, prover: Prover) -> None:
    layers = "self.linear = nn.Linear(8, 8)\n        self.drop = nn.Dropout(0.3)"
    original = problem(layers, "self.linear(self.drop(self.linear(x0)))", ROWS)
    drop = problem("self.drop = nn.Dropout(0.3)", "self.drop(x0)", ROWS)
    forward = "return self.linear(self.drop(self.linear(x)))"
    folder = one_step(tmp_path, original, {"linear": LINEAR_8, "drop": drop}, forward, WEIGHTS)
    proof = prove_folder(folder, prover)
    assert (proof.status, proof.lines) == ("PASS", [])


def test_everything_in_one_child_fails_where_the_root_is_no_kernel(folder: Path, prover: Prover) -> None:
    code = """import torch.nn as nn

from children.add_fp32 import Model as Add
from children.linear_8x8_fp32 import Model as Linear


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.all = Linear(8, 8)
        self.add = Add()

    def forward(self, x):
        return self.all(x)
"""
    write(folder / f"{MLP}/refactored.py", code)
    whole = "self.two(self.linear(x0)) + x0 * 1"  # not the original's text
    edit(folder, LINEAR, "self.linear(x0)", whole)
    edit(
        folder,
        LINEAR,
        "self.linear = nn.Linear(inner, outer)",
        "self.linear = nn.Linear(inner, outer)\n        self.two = nn.Linear(8, 8)",
    )
    weights = {
        f"all.{a}.{kind}": f"{b}.{kind}"
        for a, b in (("linear", "one"), ("two", "two"))
        for kind in ("weight", "bias")
    }
    write(folder / f"{MLP}/weight_map.json", json.dumps({"refactored_to_original": weights}))
    prove_folder(folder, prover)
    result = read(folder / MLP / "verification_result.json")
    assert result["status"] == "FAIL"
    assert result["anticheat"]["runtime_violations"] == ["everything is computed in one child, all"]


def test_a_root_that_is_one_kernel_has_a_composition_of_one(tmp_path: Path, prover: Prover) -> None:
    code = problem("", "F.leaky_relu(x0, 0.01)", "torch.randn(4, 8)")
    node = {
        "id": "act", "level": "kernel", "path": "level_0_kernel/act.py", "children": [], "step": None,
        "input_shapes": [[4, 8]], "output_shapes": [[4, 8]], "input_dtypes": ["fp32"], "output_dtypes": ["fp32"],
    }  # fmt: skip
    tree = {"metadata": {"model_name": "act", "root": "act"}, "nodes": {"act": node}}
    write(tmp_path / "decomposition_tree.json", json.dumps(tree))
    write(tmp_path / "level_0_kernel/act.py", code)
    write(tmp_path / "verification/original.py", code)
    head = "import sys\nfrom pathlib import Path\n\nsys.path.insert(0, str(Path(__file__).resolve().parents[1]))\n\n"
    parent = (
        "import torch.nn as nn\n\nfrom level_0_kernel.act import Model as Act\n\n\nclass Model(nn.Module):\n"
    )
    body = "    def __init__(self):\n        super().__init__()\n        self.act = Act()\n\n    def forward(self, x):\n        return self.act(x)\n"
    write(tmp_path / "verification/composition_test.py", head + parent + body)
    write(tmp_path / "verification/weight_map.json", '{"refactored_to_original": {}}')
    proof = prove_folder(tmp_path, prover)
    assert (proof.status, proof.lines, proof.steps) == ("PASS", [], 0)


# ----------------------------------------------------------------------------------------- computation in the parent

GOOD = STEPS["step_2_conv_norm_act"][1]
COMPUTES = {
    "an operator": ("return self.act(x)", "return self.act(x) + 0"),
    "a unary operator": ("return self.act(x)", "return -self.act(x)"),
    "a method": ("return self.act(x)", "return self.act(x).clone()"),
    "a torch call": ("return self.act(x)", "return nn.functional.relu(self.act(x))"),
    "a comprehension": ("return self.act(x)", "return [y * 2 for y in [self.act(x)]][0]"),
    "a lambda": ("return self.act(x)", "return (lambda y: y * 2)(self.act(x))"),
    "an assignment in place": ("return self.act(x)", "x += x\n        return self.act(x)"),
    "an item that is set": ("return self.act(x)", "x[0] = x\n        return self.act(x)"),
    "a slice": ("return self.act(x)", "return self.act(x[:1])"),
    "a branch": ("return self.act(x)", "if x is not None:\n            return self.act(x)"),
    "a loop": ("return self.act(x)", "for _ in x:\n            x = self.norm(x)\n        return self.act(x)"),
    "a property": (
        "    def forward",
        "    @property\n    def twice(self):\n        return self.x * 2\n\n    def forward",
    ),
    "a child called by another name": ("self.act(x)", "self.act.forward(x)"),
    "an attribute of a tensor": ("return self.act(x)", "return self.act(x).T"),
    "a layer of its own": ("super().__init__()", "super().__init__()\n        self.more = nn.Linear(8, 8)"),
    "a name from outside": ("return self.act(x)", "return nn"),
    "an argument that computes": ("Conv2d3x8K3Fp32(3, 8)", "Conv2d3x8K3Fp32(3, 4 * 2)"),
    "a class attribute": ("    def __init__", "    scale = 2\n\n    def __init__"),
    "a decorator": ("    def forward", "    @nn.Module.register_forward_hook\n    def forward"),
    "a default that computes": ("forward(self, x)", "forward(self, x, y=nn.Linear(8, 8))"),
    "a helper": ("class Model", "def twice(x):\n    return x * 2\n\n\nclass Model"),
    "another base": ("Model(nn.Module)", "Model(nn.Sequential)"),
    "an import": ("import torch.nn as nn", "import torch.nn as nn\nimport os"),
    "a child of elsewhere": ("from children.leaky", "from level_0_kernel.leaky"),
    "a walrus": ("return self.act(x)", "return (y := self.act(x))"),
    "a conditional": ("return self.act(x)", "return self.act(x) if x else x"),
    "an index that computes": ("return self.act(x)", "return self.act(x)[1 + 1]"),
    "an f-string": ("return self.act(x)", 'return f"{x}"'),
    "statements behind the return": ("return self.act(x)", "return self.act(x)\n        return x"),
}


@pytest.mark.parametrize("name", COMPUTES)
def test_a_parent_that_does_more_than_plumbing_is_refused(name: str) -> None:
    old, new = COMPUTES[name]
    assert old in GOOD
    assert Parent(GOOD, "children").violations == []
    assert Parent(GOOD.replace(old, new), "children").violations


@given(st.recursive(
    st.sampled_from(["x", "None", "1", "-2.5", "'a'", "self.act(x)", "self.norm(x, p=3)"]),
    lambda inner: st.one_of(
        st.builds("({}, {})".format, inner, inner), st.builds("[{}]".format, inner),
        st.builds("{{'k': {}}}".format, inner), st.builds("self.act({})".format, inner),
        st.builds("({},)[0]".format, inner),
    ), max_leaves=8,
))  # fmt: skip
def test_plumbing_of_any_depth_is_allowed_and_one_operator_in_it_is_not(value: str) -> None:
    plumbing = GOOD.replace("return self.act(x)", f"return self.act(x), {value}")
    assert Parent(plumbing, "children").violations == []
    for wrong in (
        f"(x * 2, {value})",
        f"({value}, x.T)",
        f"self.act(({value}, torch.relu(x)))",
        f"({value}) + (x,)",
    ):
        refused = GOOD.replace("return self.act(x)", f"return self.act(x), {wrong}")
        assert Parent(refused, "children").violations


@pytest.mark.parametrize(
    "line",
    [
        "import os", "import sys", "import importlib", "from . import other", "from level_0_kernel import x", "import refactored",
        "import torch.utils.cpp_extension", "from torch import os", "from torch import *", "import numpy",
        "X = open('original.py')", "X = eval('1')", "exec('x = 1')", "X = __import__('os')", "X = globals()",
        "X = getattr(torch, 's' + 'ys')", "setattr(torch, 'equal', None)", "X = nn.Module.__subclasses__()",
        "X = torch.hub.load('a', 'b')", "X = torch.load('x')", "torch.allclose = None", "del torch.relu", "X = __builtins__",
        "nn.Linear.forward = None",
    ],
)  # fmt: skip
def test_a_child_that_reaches_out_is_refused(line: str) -> None:
    good = problem("", "F.relu(x0)", "torch.rand(2)")
    assert child_violations(good) == []
    assert child_violations(good.replace("class Model", f"{line}\n\n\nclass Model")) != []


def test_views_in_the_parent_are_seen_when_it_runs(folder: Path, prover: Prover) -> None:
    # Indexing is plumbing for a tuple: only the run shows that this is a tensor.
    edit(folder, f"{MLP}/refactored.py", "return self.add(y, x)", "return self.add(y, [x][0][0])")
    prove_folder(folder, prover)
    violations = read(folder / MLP / "verification_result.json")["anticheat"]["runtime_violations"]
    assert violations == ["the parent makes views: aten.select x1"]


# ------------------------------------------------------------------------------------------------- what cannot be run


@pytest.mark.parametrize(
    ("line", "status", "reason"),
    [
        pytest.param("while True: pass", "ERROR", "timeout", marks=pytest.mark.heavy),
        (
            "x0 = torch.ones(50_000_000_000)[: 4 * 8 * 36].view(4, 8, 6, 6) * x0",
            "ERROR",
            "numbers do not fit",
        ),
        ("torch.foo.bar", "FAIL", "does not run: AttributeError"),
        ("raise SystemExit(0)", "ERROR", "SystemExit"),
    ],
)
def test_a_kernel_that_cannot_be_run_is_one_line_and_the_others_go_on(
    line: str, status: str, reason: str, folder: Path, prover: Prover
) -> None:
    edit(folder, ACT, "        return F", f"        {line}\n        return F")
    proof = prove_folder(folder, prover)
    assert status_of(folder, BLOCK) == status
    assert [line for line in proof.lines if line.startswith(BLOCK) and reason in line], proof.lines
    assert status_of(folder, MLP) == "PASS"
    assert proof.status in ("FAIL", "ERROR")
    assert all("\n" not in line for line in proof.lines)


@pytest.mark.parametrize("line", ["import os; os._exit(0)", "import ctypes; ctypes.string_at(0)"])
def test_an_original_that_ends_the_process_is_an_error(line: str, folder: Path, prover: Prover) -> None:
    source = (folder / "verification/original.py").read_text(encoding="utf-8")
    for path in ("verification/original.py", f"{ROOT}/original.py", "level_3_model/net.py"):
        write(folder / path, source.replace("        p = h.mean", f"        {line}\n        p = h.mean"))
    proof = prove_folder(folder, prover)
    assert status_of(folder, ROOT) == "ERROR"
    assert status_of(folder, MLP) == "PASS"
    assert [line for line in proof.lines if "composition: crashed" in line], proof.lines


@pytest.mark.parametrize(
    "mutation", ["a tree that is none", "no source", "two roots", "a cycle", "out of the folder"]
)
def test_a_folder_that_is_no_tree_is_one_line_and_leaves_no_old_result(
    mutation: str, folder: Path, prover: Prover
) -> None:
    for path in (f"{ROOT}/verification_result.json", "verification/test_results.json"):
        write(folder / path, '{"status": "PASS"}')
    tree = read(folder / "decomposition_tree.json")
    if mutation == "a tree that is none":
        write(folder / "decomposition_tree.json", "[1, 2")
    elif mutation == "no source":
        (folder / "verification/original.py").unlink()
    elif mutation == "two roots":
        tree["metadata"]["root"] = "nobody"
    elif mutation == "a cycle":
        tree["nodes"]["mean_fp32"]["children"] = ["net"]
    else:
        tree["nodes"]["mean_fp32"]["path"] = "level_0_kernel/../../elsewhere.py"
    if mutation not in ("a tree that is none", "no source"):
        write(folder / "decomposition_tree.json", json.dumps(tree))
    proof = prove_folder(folder, prover)
    assert (proof.status, len(proof.lines)) == ("ERROR", 1)
    assert not (folder / ROOT / "verification_result.json").exists()
    assert not (folder / "verification/test_results.json").exists()


def test_a_stale_pass_is_never_read(folder: Path, prover: Prover) -> None:
    assert prove_folder(folder, prover).status == "PASS"
    edit(folder, ACT, "0.01", "0.02")
    assert prove_folder(folder, prover).status == "FAIL"
    assert status_of(folder, BLOCK) == status_of(folder, "verification") == "FAIL"
    assert read(folder / "decomposition_tree.json")["metadata"]["verification_status"] == "FAIL"


# ------------------------------------------------------------------------------------------------------- train mode


ROWS = "torch.randn(4, 8)"
LINEAR_8 = problem("self.linear = nn.Linear(8, 8)", "self.linear(x0)", ROWS)
WEIGHTS = {"linear.linear.weight": "linear.weight", "linear.linear.bias": "linear.bias"}
DROP = problem(
    "self.linear = nn.Linear(8, 8)\n        self.drop = nn.Dropout(0.3)",
    "torch.tanh(self.drop(self.linear(x0)))",
    ROWS,
)
TANH = problem("", "torch.tanh(x0)", ROWS)


def _proof_of(
    folder: Path, drop: str | None, prover: Prover, original: str = DROP
) -> tuple[Proof, dict[str, Any]]:
    kernels = {"linear": LINEAR_8, "tanh": TANH} | ({"drop": drop} if drop else {})
    forward = "return self.tanh(self.drop(self.linear(x)))" if drop else "return self.tanh(self.linear(x))"
    proof = prove_folder(one_step(folder, original, kernels, forward, WEIGHTS), prover)
    return proof, read(folder / "verification/test_results.json")


def test_dropout_is_compared_in_train_mode_and_may_not_be_dropped(tmp_path: Path, prover: Prover) -> None:
    kept = problem("self.drop = nn.Dropout(0.3)", "self.drop(x0)", ROWS)
    proof, result = _proof_of(tmp_path / "kept", kept, prover)
    assert (proof.status, proof.lines) == ("PASS", [])
    assert result["numerical_comparison"]["train"].startswith("PASS")
    proof, _ = _proof_of(tmp_path / "other", kept.replace("0.3", "0.4"), prover)
    assert [line for line in proof.lines if "train mode" in line]
    proof, _ = _proof_of(tmp_path / "lost", None, prover)
    assert proof.status == "FAIL"
    assert [line for line in proof.lines if "in train mode the refactored has other operations" in line], (
        proof.lines
    )


def test_what_only_the_original_does_in_train_mode_is_said_and_not_compared(
    tmp_path: Path, prover: Prover
) -> None:
    hidden = DROP.replace("self.drop(self.linear(x0))", "F.dropout(self.linear(x0), 0.3, self.training)")
    proof, result = _proof_of(tmp_path, None, prover, hidden)
    assert (proof.status, proof.lines) == ("PASS", [])
    assert result["numerical_comparison"]["train"].startswith(
        "not compared (the original does other operations in train mode"
    )


def test_other_constants_in_train_mode_are_said_and_not_compared(tmp_path: Path, prover: Prover) -> None:
    hidden = DROP.replace(
        "self.linear(x0)", "self.linear(x0 * torch.tensor([3.0 if self.training else 2.0]))"
    )
    first = problem(
        "self.linear = nn.Linear(8, 8)", "self.linear(x0 * torch.tensor([2.0], device=x0.device))", ROWS
    )
    kernels = {
        "linear": first,
        "drop": problem("self.drop = nn.Dropout(0.3)", "self.drop(x0)", ROWS),
        "tanh": TANH,
    }
    folder = one_step(tmp_path, hidden, kernels, "return self.tanh(self.drop(self.linear(x)))", WEIGHTS)
    proof = prove_folder(folder, prover)
    assert (proof.status, proof.lines) == ("PASS", [])
    train = read(folder / "verification/test_results.json")["numerical_comparison"]["train"]
    assert train == "not compared (the original has other constants in train mode)"


# ------------------------------------------------------------------------------------------------------------- sizes


def test_a_model_too_large_is_compared_at_smaller_inputs_and_its_shapes_at_full_size(
    tmp_path: Path, prover: Prover
) -> None:
    large = 100_000
    rows = f"torch.randn({large}, 512)"
    original = problem("self.linear = nn.Linear(512, 512)", "torch.tanh(self.linear(x0))", rows)
    kernels = {
        "linear": problem("self.linear = nn.Linear(512, 512)", "self.linear(x0)", rows),
        "tanh": problem("", "torch.tanh(x0)", rows),
    }
    folder = one_step(tmp_path, original, kernels, "return self.tanh(self.linear(x))", WEIGHTS)

    def shapes(nodes: dict[str, Any]) -> None:
        for node in nodes.values():
            node.update(input_shapes=[[large, 512]], output_shapes=[[large, 512]])

    _edit_tree(folder, shapes)
    proof = prove_folder(folder, prover)
    assert (proof.status, proof.lines, proof.reduced) == ("PASS", [], True)
    reduced = read(folder / "verification/test_results.json")["numerical_comparison"]["reduced"]
    assert reduced["from"] == [[large, 512]]
    assert 2 <= reduced["to"][0][0] < large
    assert reduced["to"][0][1] == 512


def test_a_model_whose_inputs_cannot_be_smaller_is_an_error_where_it_does_not_fit(
    tmp_path: Path, prover: Prover
) -> None:
    rows = "torch.randn(400_000, 4096)"
    original = problem("self.linear = nn.Linear(8, 8)", "torch.tanh(x0.view(400_000, 512, 8))", rows)
    kernels = {
        "view": problem("", "x0.view(400_000, 512, 8)", rows),
        "tanh": problem("", "torch.tanh(x0)", "torch.randn(400_000, 512, 8)"),
    }
    folder = one_step(tmp_path, original, kernels, "return self.tanh(self.view(x))", {})
    full, cut = [[400_000, 4096]], [[400_000, 512, 8]]

    def shapes(nodes: dict[str, Any]) -> None:
        for name, taken, made in (("root", full, cut), ("view", full, cut), ("tanh", cut, cut)):
            nodes[name].update(input_shapes=taken, output_shapes=made)

    _edit_tree(folder, shapes)
    proof = prove_folder(folder, prover)
    assert proof.status == "ERROR"
    assert all("numbers do not fit" in line for line in proof.lines)


@pytest.mark.parametrize("short_of", ["memory_mb", "_FLOPS"])
def test_a_claim_that_needs_more_than_others_have_is_tried_alone(
    folder: Path, prover: Prover, monkeypatch: pytest.MonkeyPatch, short_of: str
) -> None:
    prover.start("")  # with the memory that others have
    monkeypatch.setattr(prover if short_of == "memory_mb" else prove_module, short_of, 0)
    alone = []

    def run_exclusive(self: Prover, request: dict[str, Any], memory: int) -> Any:
        alone.append(request)
        return self.run({**request, "limits": [memory, 10**12], "threads": 2})

    monkeypatch.setattr(Prover, "run_exclusive", run_exclusive)
    proof = prove_folder(folder, prover)
    assert (proof.status, proof.lines) == ("PASS", [])
    assert alone
    monkeypatch.undo()
    monkeypatch.setattr(prover, "memory_mb", 0)
    monkeypatch.setattr("kernelmill.decompose.prove.prover._free_memory", lambda: 0)
    proof = prove_folder(folder, prover)
    assert proof.status == "ERROR"
    assert all("numbers do not fit" in line for line in proof.lines)


def test_a_claim_that_runs_alone_ends_when_the_prover_is_closed() -> None:
    endless = {
        "original": "while True: pass",
        "refactored": {},
        "main": "",
        "weight_map": {},
        "limits": [1, 1],
    }
    prover = Prover(1, timeout=3600)
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(prover.run_exclusive, endless, 2 << 30)
        while prover._exclusive is None:
            time.sleep(0.05)
        prover._exclusive.what_is_missing()  # waits until it is ready
        time.sleep(1)
        prover.close()
        assert reply.result(timeout=240)["kind"] not in ("ok", "timeout")


def test_a_level_that_was_left_out_is_read_from_its_steps(folder: Path, prover: Prover) -> None:
    shutil.rmtree(folder / "level_1_fusion")
    assert prove_folder(folder, prover).status == "PASS"
    edit(folder, f"{BLOCK}/original.py", "0.01", "0.02")
    assert prove_folder(folder, prover).status == "FAIL"


# ----------------------------------------------------------------------------------------------------------- command


def test_the_command_proves_what_is_below_a_folder_and_fails_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tree(tmp_path / "level3/1_good")
    edit(write_tree(tmp_path / "level3/2_bad"), ACT, "0.01", "0.02")
    assert kernelmill(["prove", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "1 of 2 proven, 1 failed" in out
    assert "FAIL 2_bad: steps/step_2_conv_norm_act: eval mode" in out
    assert "1_good  3/3    PASS" in out


def test_a_wrong_path_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert kernelmill(["prove", str(tmp_path / "nothing")]) == 1
    assert kernelmill(["prove", str(tmp_path)]) == 1
    (tmp_path / "net.py").touch()
    assert kernelmill(["prove", str(tmp_path / "net.py")]) == 1
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 3
    assert "no such folder" in said[0]
    assert "no decomposition_tree.json at or below it" in said[1]
    assert "net.py: a file: name the folder of its model" in said[2]


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
@pytest.mark.heavy
def test_any_two_weights_of_one_shape_that_change_places_are_noticed(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory, prover: Prover
) -> None:
    folder = write_tree(tmp_path_factory.mktemp("swap") / "net")
    weights = read(folder / "verification/weight_map.json")["refactored_to_original"]
    rows = [
        name for name, source in weights.items() if not source.endswith("weight") or source.startswith("bn")
    ]
    one, other = data.draw(st.lists(st.sampled_from(rows), min_size=2, max_size=2, unique=True))
    edit_map(folder, "verification", {one: weights[other], other: weights[one]})
    prove_folder(folder, prover)
    assert status_of(folder, "verification") == "FAIL"
