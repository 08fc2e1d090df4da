"""Forty wrong decompositions, half of them written with the prover's source at hand: none is proven. Each is one good decomposition with
one of its files changed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelmill.decompose.prove.prover import Proof, Prover, prove_folder
from kernelmill.decompose.prove.rules.single_path import single_path_violations
from tests.decompose.trees import edit, one_step, problem

ACT = "level_0_kernel/act.py"
ROWS = "torch.randn(4, 8)"
CLASS, RETURN = "class Model(nn.Module):", "return torch.tanh(F.leaky_relu(x0, 0.01)) * 2.0"
SUPER, INPUTS = "super().__init__()", f"return [{ROWS}]"


@pytest.fixture(scope="module")
def prover() -> Iterator[Prover]:
    with Prover(workers=2, timeout=20, memory_mb=2048) as made:
        yield made


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory, prover: Prover) -> Path:
    """A decomposition that is proven."""
    linear = problem("self.linear = nn.Linear(8, 8)", "self.linear(x0)", ROWS)
    act = problem("", RETURN.removeprefix("return "), ROWS)
    whole = problem(
        "self.linear = nn.Linear(8, 8)", "torch.tanh(F.leaky_relu(self.linear(x0), 0.01)) * 2.0", ROWS
    )
    weights = {f"linear.linear.{name}": f"linear.{name}" for name in ("weight", "bias")}
    folder = one_step(
        tmp_path_factory.mktemp("good") / "net",
        whole,
        {"linear": linear, "act": act},
        "return self.act(self.linear(x))",
        weights,
    )
    assert prove_folder(folder, prover).lines == []
    return folder


def slope(text: str) -> str:
    return RETURN.replace("0.01", text)


def returned(text: str) -> str:
    return RETURN.replace("x0", text)


def lines(*some: str) -> str:
    return "\n        ".join(some)


Change = tuple[tuple[str, str], ...]
OTHER_VALUES: dict[str, Change] = {
    "a clamp that few numbers reach": ((RETURN, returned("x0.clamp(-1e4, 1e4)")),),
    "a clamp of the result": ((RETURN, f"return ({RETURN.removeprefix('return ')}).clamp(-3, 3)"),),
    "another value where the input is large": ((RETURN, returned("torch.where(x0 > 50, x0 * 2, x0)")),),
    "no NaN": ((RETURN, returned("torch.nan_to_num(x0)")),),
    "a type with fewer digits between": ((RETURN, returned("x0.double().float()")),),
    "something that rounds to nothing": ((RETURN, returned("(x0 + 1e-12)")),),
    "times one": ((RETURN, f"{RETURN} * 1.0"),),
    "zeros for infinities": ((RETURN, returned("x0.masked_fill(x0.isinf(), 0.0)")),),
    "a row that is written, were there so many": (
        (RETURN, lines("y = x0.clone()", "y[5:] = 0.0", returned("y"))),
    ),
    "inputs of zeros": ((INPUTS, "return [torch.zeros(4, 8)]"),),
    "inputs of zeros, drawn": ((INPUTS, f"return [{ROWS} * 0]"),),
}
OTHER_PLACES: dict[str, Change] = {
    "a branch on the device": ((RETURN, lines("if x0.is_cuda:", "    x0 = x0 * 2", RETURN)),),
    "a branch on CUDA": ((RETURN, lines("if torch.cuda.is_available():", "    x0 = x0 * 2", RETURN)),),
    "a branch on autograd": ((RETURN, lines("if torch.is_grad_enabled():", "    x0 = x0 * 2", RETURN)),),
    "a branch on the seed": (
        (RETURN, lines("if torch.initial_seed() == 5:", "    x0 = x0 * 2", RETURN)),
    ),
    "a branch on the batch": ((RETURN, lines("if x0.shape[0] > 200:", "    x0 = x0 * 2", RETURN)),),
    "a branch on the type": ((RETURN, lines("if x0.dtype == torch.float16:", "    x0 = x0 * 2", RETURN)),),
    "a conditional expression": ((RETURN, slope("0.5 if x0.requires_grad else 0.01")),),
    "a loop over a size": (
        (RETURN, lines("for _ in range(x0.shape[0] // 9):", "    x0 = x0 * 2", RETURN)),
    ),
    "a call counter": (
        (RETURN, lines("self.calls = getattr(self, 'calls', 0) + 1", slope("0.01 + (self.calls > 99)"))),
    ),
}  # fmt: skip
WITH_THE_SOURCE_AT_HAND: dict[str, Change] = {
    "a list of two and an index": ((RETURN, slope("(0.01, 0.5)[x0.is_cuda]")),),
    "a truth as a number": ((RETURN, slope("0.01 + x0.requires_grad")),),
    "a size that is compared as a number": ((RETURN, slope("0.01 + (x0.shape[0] > 200)")),),
    "a size by a variable": ((RETURN, lines("n = x0.shape[0]", slope("0.01 + (n > 200)"))),),
    "whole-number division": ((RETURN, slope("0.01 + x0.shape[0] // 200")),),
    "whole-number division by a variable": (
        (RETURN, lines("n = x0.shape[0] // 200", slope("0.01 + n"))),
    ),
    "a power that is nothing at this size": ((RETURN, slope("0.01 + 2.0 ** (x0.shape[0] - 2000)")),),
    "a size that is one at this size": ((RETURN, slope("0.01 * (x0.shape[0] / 4)")),),
    "the greater of two": ((RETURN, slope("max(0.01, x0.shape[0] - 200)")),),
    "the address of a tensor": ((RETURN, slope("0.01 + x0.data_ptr() % 64")),),
    "a default that is changed": (
        ("forward(self, x0)", "forward(self, x0, seen=[])"),
        (RETURN, lines("seen.append(1)", slope("0.01 + len(seen) // 99"))),
    ),
    "a counter of the module": (
        (CLASS, f"import itertools\n\nCALLS = itertools.count()\n\n\n{CLASS}"),
        (RETURN, slope("0.01 + next(CALLS) // 99")),
    ),
    "a list of the class": (
        (SUPER, lines(SUPER, "self.seen = []")),
        (RETURN, lines("self.seen.append(1)", slope("0.01 + len(self.seen) // 99"))),
    ),
    "a buffer that is written": (
        (SUPER, lines(SUPER, "self.register_buffer('seen', torch.zeros(4, dtype=torch.int64))")),
        (RETURN, lines("self.seen.copy_(self.seen.new_ones(4))", RETURN)),
    ),
    "a method of nn.Module": (
        ("    def forward", "    def cuda(self, device=None):\n        return nn.Identity()\n\n    def forward"),
    ),
    "a hook": (
        (CLASS, f"def twice(module, args):\n    return (args[0] * 1.0,)\n\n\n{CLASS}"),
        (SUPER, lines(SUPER, "self.register_forward_pre_hook(twice)")),
    ),
    "a cache": (
        (CLASS, f"import functools\n\n\n@functools.lru_cache\ndef f(x):\n    return x\n\n\n{CLASS}"),
        (RETURN, returned("f(x0)")),
    ),
    "a constructor that asks for the machine": (
        (SUPER, lines(SUPER, "self.slope = 0.5 if torch.cuda.is_available() else 0.01")),
        (RETURN, slope("self.slope")),
    ),
    "a gradient that ends here": ((RETURN, returned("x0.detach()")),),
    "a file that is made with something else": (
        ("def __init__(self)", "def __init__(self, slope=0.01)"),
        (SUPER, lines(SUPER, "self.slope = slope")),
        (RETURN, slope("self.slope")),
        ("get_init_inputs():\n    return []", "get_init_inputs():\n    return [0.5]"),
    ),
}  # fmt: skip
_COUNTED = f"class Kind:\n    count = 0\n\n\n{CLASS}"
SHARED_STATE = {
    "a weight that a call ties": ("self.a = nn.Linear(8, 8)", "self.a.weight = self.b.weight\n        return x0"),
    "the layer's class": ("self.a = nn.Linear(8, 8)\n        self.a.__class__.bias = self.b.bias", "return x0"),
    "a class of the file": ("self.a = Kind\n        self.n = self.a.count + 1\n        self.a.count = self.n", "return x0"),
    "a layer, then a class": ("self.a = nn.ReLU()\n        self.a = Kind\n        self.a.count = self.b.weight", "return x0"),
    "a class inside of a layer": ("self.a = Own()\n        self.a.kind.count = self.b.weight", "return x0"),
    "a method of a layer": ("self.a = nn.Linear(8, 8)\n        self.a.forward = self.b.forward", "return x0"),
    "an object that a function returns": ("self.a = max(Kind, Kind)\n        self.a.count = self.b.weight", "return x0"),
}  # fmt: skip
"""Statements of `__init__` and of `forward`: writes to what other objects or later calls see."""
WRONG = OTHER_VALUES | OTHER_PLACES | WITH_THE_SOURCE_AT_HAND


def changed(good: Path, to: Path, change: Change) -> Path:
    shutil.copytree(good, to)
    for old, new in change:
        edit(to, ACT, old, new)
    return to


def test_there_are_forty_and_half_of_them_know_the_prover() -> None:
    assert len(WRONG) >= 40
    assert len(WITH_THE_SOURCE_AT_HAND) >= 20


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_decomposition_is_not_proven(name: str, good: Path, tmp_path: Path, prover: Prover) -> None:
    proof: Proof = prove_folder(changed(good, tmp_path / "net", WRONG[name]), prover)
    assert proof.status == "FAIL", proof.lines
    assert all(line.startswith((ACT, "steps/", "composition: ")) for line in proof.lines), proof.lines
    assert not [line for line in proof.lines if "does not run" in line], "it is wrong, not broken"


@pytest.mark.parametrize("name", WITH_THE_SOURCE_AT_HAND)
def test_statements_of_the_source_may_do_what_they_like(name: str, good: Path, tmp_path: Path) -> None:
    code = (changed(good, tmp_path / "net", WITH_THE_SOURCE_AT_HAND[name]) / ACT).read_text(encoding="utf-8")
    assert single_path_violations(code, code) == []


def with_state(init: str, forward: str) -> str:
    own = (
        "class Own(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.kind = Kind"
    )
    code = problem(f"self.b = nn.Linear(8, 8)\n        {init}", "x0", ROWS).replace(CLASS, f"{_COUNTED}")
    return code.replace(CLASS, f"{own}\n\n\n{CLASS}").replace("return x0", forward)


@pytest.mark.parametrize("name", SHARED_STATE)
def test_a_write_to_what_others_share_is_state(name: str) -> None:
    found = single_path_violations(with_state(*SHARED_STATE[name]), "")
    assert [line for line in found if "state that outlives a call: self.a." in line], found


@pytest.mark.parametrize(
    "init",
    [
        "self.a = nn.Linear(8, 8)\n        self.a.weight = self.b.weight",
        "self.w = nn.Parameter(torch.randn(8, 8))\n        self.a = nn.Linear(8, 8)\n        self.a.weight = self.w",
    ],
)
def test_weights_of_new_layers_may_be_tied(init: str) -> None:
    assert single_path_violations(with_state(init, "return self.a(self.b(x0))"), "") == []


def test_weights_inside_of_a_module_of_the_author_may_be_tied() -> None:
    own = (
        "class Own(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.kind = Kind"
    )
    code = with_state("self.a = Own()\n        self.a.kind.weight = self.b.weight", "return self.a(x0)")
    assert single_path_violations(code, own) == []
