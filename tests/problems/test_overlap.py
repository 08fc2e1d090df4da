from __future__ import annotations

import ast
import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelmill.problems.similarity.operations import operations
from kernelmill.problems.similarity.overlap import FLOOR, FingerprintIndex, Match, fingerprint
from kernelmill.store import open_source
from kernelmill.testing.disguises import DISGUISES, renamed

SHARE = 0.8


def problem_set(codes: list[str], share: float = SHARE) -> FingerprintIndex:
    found = FingerprintIndex(share)
    for code in codes:
        found.add(fingerprint(code))
    found.finish()
    return found


def codes_of(source: str) -> dict[str, str]:
    codes = {}
    for row in open_source(source).rows():
        columns = json.loads(row.raw)
        info = columns.get("info") or {"module_name": columns.get("name"), **columns}
        codes[info["module_name"]] = info["python_code"]
    return codes


BUNDLED = codes_of("bundled:problems")
CODES = list(BUNDLED.values())
PROBLEMS = problem_set(CODES)


def module(forward: str, init: str = "", top: str = "", imports: str = "") -> str:
    """A module by its lines."""
    parts = [
        "import torch",
        "import torch.nn as nn",
        "import torch.nn.functional as F",
        imports,
        "",
        "class Model(nn.Module):",
    ]
    if init:
        parts += [
            "    def __init__(self, size=8):",
            "        super().__init__()",
            *(f"        {line}" for line in init.splitlines()),
        ]
    parts += ["    def forward(self, x, y=None):", *(f"        {line}" for line in forward.splitlines()), top]
    return "\n".join(parts) + "\n"


def operations_of(code: str) -> list[list[str]]:
    return list(operations(ast.parse(code)))


NOT_IN_SMALL_ONES = {"wrapped", "guarded"}


@pytest.mark.parametrize("disguise", DISGUISES)
def test_a_disguised_copy_is_found(disguise: str) -> None:
    for number, code in enumerate(CODES):
        if disguise in NOT_IN_SMALL_ONES and len(fingerprint(code).runs) < 6:
            continue
        found = PROBLEMS.matches(fingerprint(DISGUISES[disguise](code)))
        assert number in [match.problem for match in found], (disguise, list(BUNDLED)[number])


@pytest.mark.parametrize("disguise", ["reformatted", "renamed", "with_dead_code"])
def test_what_changes_no_code_leaves_the_code_the_same(disguise: str) -> None:
    for number, code in enumerate(CODES):
        assert PROBLEMS.matches(fingerprint(DISGUISES[disguise](code)))[0] == Match(number, "same code", 1.0)


def test_two_disguises_at_once_are_seen_through() -> None:
    for number, code in enumerate(CODES):
        both = DISGUISES["reordered"](DISGUISES["with_temporaries"](DISGUISES["renamed"](code)))
        assert number in [match.problem for match in PROBLEMS.matches(fingerprint(both))]


def test_honest_modules_are_not_taken_for_each_other() -> None:
    pairs = [
        (list(BUNDLED)[number], list(BUNDLED)[match.problem])
        for number, code in enumerate(CODES)
        for match in PROBLEMS.matches(fingerprint(code))
        if match.problem != number
    ]
    # The one pair of 1,560: the small one's dropout, residual and norm do stand in the larger one, in that order.
    assert pairs == [("16_Embedding_Position_LayerNorm", "4_Residual_LayerNorm")]


def test_the_samples_hold_two_bundled_problems_and_these_are_found() -> None:
    samples = codes_of("bundled:samples/evals.jsonl")
    found = {name: PROBLEMS.matches(fingerprint(code)) for name, code in samples.items()}
    # The one is written twice, the other is the first half of attention.
    assert {
        name: [list(BUNDLED)[match.problem] for match in matches]
        for name, matches in found.items()
        if matches
    } == {
        "ScaledTanh": ["2_ScaledTanh"],
        "AttentionCore": ["2_Matmul_Scale_Softmax"],
    }


@given(st.randoms(use_true_random=False), st.sampled_from(CODES))
@settings(max_examples=60, deadline=None)
def test_renaming_never_changes_the_verdict(random: object, code: str) -> None:
    new = renamed(code, lambda name: f"{random.choice('abcxyz')}{random.randrange(10**9)}_{name}")  # type: ignore[attr-defined]
    assert PROBLEMS.matches(fingerprint(new)) == PROBLEMS.matches(fingerprint(code))


@given(
    st.lists(st.sampled_from(range(len(CODES))), min_size=1, max_size=8, unique=True),
    st.integers(0, len(CODES) - 1),
)
@settings(max_examples=60, deadline=None)
def test_the_index_finds_what_comparing_with_every_problem_finds(chosen: list[int], row: int) -> None:
    code = "\n".join([CODES[row], CODES[chosen[0]].replace("class Model", "class Other")])
    held = set(fingerprint(code).runs)
    expected = []
    for number, at in enumerate(chosen):
        runs = set(fingerprint(CODES[at]).runs)
        small = len(runs) < FLOOR
        if runs == held if small else len(runs & held) / len(runs) >= SHARE:
            expected.append((number, len(runs & held) / len(runs)))
    found = problem_set([CODES[at] for at in chosen]).matches(fingerprint(code))
    assert sorted((match.problem, match.share) for match in found if match.how == "n-grams") == sorted(
        expected
    )


@given(st.permutations(range(6)))
@settings(max_examples=20, deadline=None)
def test_the_order_of_the_problems_does_not_matter(order: list[int]) -> None:
    code = DISGUISES["wrapped"](CODES[20])
    codes = CODES[18:24]
    straight = problem_set(codes).matches(fingerprint(code))
    mixed = problem_set([codes[at] for at in order]).matches(fingerprint(code))
    assert {(order[match.problem], match.share) for match in mixed} == {
        (m.problem, m.share) for m in straight
    }


def test_a_tiny_problem_must_be_all_there_is() -> None:
    relu = problem_set([module("return torch.relu(x)")])
    assert relu.matches(fingerprint(module("return torch.relu(x)", init="pass"))) != []
    assert relu.matches(fingerprint(module("out = torch.relu(x)\nreturn out")))[0].how == "n-grams"
    assert relu.matches(fingerprint(module("return torch.sigmoid(torch.relu(x))"))) == []
    assert relu.matches(fingerprint(module("return F.relu(x)"))) == []


def test_operators_alone_are_compared_by_code() -> None:
    scale = problem_set([module("return x * 2.0")])
    assert scale.matches(fingerprint(module("return x * 2.0")))[0].how == "same code"
    assert scale.matches(fingerprint(module("return x * 3.0"))) == []


def test_constants_of_the_file_count_where_the_class_reads_them() -> None:
    unread = module(
        "return torch.softmax(x, dim=1)", top="SIZE = 4\ndef get_inputs():\n    return [torch.rand(SIZE)]"
    )
    assert fingerprint(unread).key == fingerprint(module("return torch.softmax(x, dim=1)")).key
    read = module("return torch.softmax(x, dim=DIM)", top="DIM = 1")
    assert fingerprint(read).key != fingerprint(module("return torch.softmax(x, dim=DIM)", top="DIM = 2")).key
    hidden = module("return torch.softmax(x, dim=DIM)", top="DIM = BASE + 1\nBASE = 0\nOTHER = 5")
    assert fingerprint(hidden).key == fingerprint(hidden.replace("OTHER = 5", "")).key
    assert fingerprint(hidden).key != fingerprint(hidden.replace("BASE = 0", "BASE = 1")).key


def test_a_constructor_that_does_nothing_is_as_good_as_none() -> None:
    bare = (
        "import torch\nclass A(torch.nn.Module):\n{}    def forward(self, x):\n        return torch.relu(x)\n"
    )
    old = "    def __init__(self):\n        super(A, self).__init__()\n"
    new = "    def __init__(self):\n        '''Nothing.'''\n        super().__init__()\n        pass\n"
    assert len({fingerprint(bare.format(init)).key for init in ("", old, new)}) == 1
    takes = "    def __init__(self, size):\n        super().__init__()\n"
    assert fingerprint(bare.format(takes)).key != fingerprint(bare.format("")).key


def test_statements_are_cut_out_wherever_they_stand() -> None:
    plain = fingerprint(module("x = torch.relu(x)\nreturn x")).key
    for forward in (
        "é = 'ü'; x = torch.relu(x); ß = 1\nreturn x",
        "a = b = torch.tanh(x)\nx = torch.relu(x)\nc = torch.ones(\n    3,\n    4)\nreturn x",
        "first = torch.tanh(x)\nsecond = first + 1\nx = torch.relu(x)\nreturn x",
    ):
        assert fingerprint(module(forward)).key == plain, forward
        assert fingerprint(module(forward).replace("\n", "\r\n")).key == plain
        assert fingerprint("\ufeff" + module(forward)).key == plain
    decorated = module("x = torch.relu(x)\nreturn x", top="@torch.no_grad()\ndef helper(x):\n    return x")
    assert fingerprint(decorated).key == plain


def test_operations_stand_in_the_order_of_computation() -> None:
    init = "self.fc = nn.Linear(size, size)"
    nested = module("return torch.sigmoid(self.fc(-x.view(8)) + torch.exp(x))", init)
    steps = module(
        "z = x.view(8)\nz = -z\nz = self.fc(z)\nw = torch.exp(x)\nz = z + w\nreturn torch.sigmoid(z)", init
    )
    assert operations_of(nested) == [
        ["torch.nn.Linear"],
        ["None", ".view()", "USub", "torch.nn.Linear", "torch.exp", "Add", "torch.sigmoid"],
    ]
    assert operations_of(nested) == operations_of(steps)


def test_imported_names_are_written_out_however_they_were_imported() -> None:
    ways = [
        ("return F.relu(x)", ""),
        ("return torch.nn.functional.relu(x)", ""),
        ("return relu(x)", "from torch.nn.functional import relu"),
        ("return act(x)", "from torch.nn.functional import relu as act"),
        ("from torch.nn.functional import relu\nreturn relu(x)", ""),
    ]
    assert {str(operations_of(module(forward, imports=line))) for forward, line in ways} == {
        "[['None', 'torch.nn.functional.relu']]"
    }


def test_keywords_count_for_torch_and_not_for_what_the_module_defines() -> None:
    def calls(keyword: str) -> list[list[str]]:
        return operations_of(module(f"return self.part({keyword}=x)", init="self.part = Part(size)"))

    assert calls("a") == calls("b")
    assert operations_of(module("return torch.sum(x, dim=1)")) != operations_of(
        module("return torch.sum(x, axis=1)")
    )


@pytest.mark.parametrize(
    "code", ["class Model(:\n", "print 'hello'", "\0", "(" * 5000, "\ud800", "x = " + "-" * 20000 + "1"]
)
def test_what_is_no_python_is_taken_as_text_and_says_so(code: str) -> None:
    found = fingerprint(code)
    assert not found.parsed
    assert problem_set([code]).matches(found) == [Match(0, "same code", 1.0)]
    assert PROBLEMS.matches(found) == []


@pytest.mark.parametrize(
    "code", ["", "  \n", "# nothing\n", "'''A docstring.'''\n", "import torch\n", "SIZE = 3\n"]
)
def test_what_has_no_class_and_no_function_is_the_same_as_nothing(code: str) -> None:
    assert fingerprint(code).key == b""
    assert problem_set([code]).matches(fingerprint(code)) == []


def test_functions_alone_are_modules_too() -> None:
    code = "import torch\ndef soft(x):\n    return torch.softmax(x, dim=1)\n"
    other = "from torch import softmax\nN = 3\ndef attend(a):\n    return softmax(a, dim=1)\ndef get_inputs():\n    return []\n"
    assert problem_set([code]).matches(fingerprint(other)) != []


def test_fingerprints_are_the_same_in_every_process() -> None:
    line = "import sys; from kernelmill.problems.similarity.overlap import fingerprint; f = fingerprint(sys.stdin.read()); print(f.key.hex(), *f.runs)"
    done = [
        subprocess.run([sys.executable, "-c", line], input=CODES[30], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    here = fingerprint(CODES[30])
    assert done == [f"{here.key.hex()} {' '.join(map(str, here.runs))}\n"] * 2
