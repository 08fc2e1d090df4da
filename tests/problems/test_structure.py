"""The normal form: what changes nothing, and what changes everything."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmill.problems.similarity.normal_form import normal_tokens
from kernelmill.problems.similarity.structure import jaccard, structure_of
from tests.curate.test_unique import BLOCK, RENAMED


def same(one: str, other: str) -> bool:
    return structure_of(one).key == structure_of(other).key


def test_the_same_code_under_other_names_imports_and_formats_is_one_structure() -> None:
    assert same(BLOCK, RENAMED)


@pytest.mark.parametrize(
    "change",
    [
        ("+ x", "- x"),
        ("0.1", "0.2"),
        ("leaky_relu", "elu"),
        ("width, width", "width, 2 * width"),
        ("nn.Linear", "nn.Bilinear"),
        ("y = self.fc(x)", "y = self.fc(x)\n        y = self.fc(y)"),
        ("return F", "return -F"),
        ("(y, self.slope)", "(y, negative_slope=self.slope)"),
    ],
)
def test_a_change_that_changes_the_result_changes_the_structure(change: tuple[str, str]) -> None:
    assert BLOCK.replace(*change) != BLOCK
    assert not same(BLOCK, BLOCK.replace(*change))


@pytest.mark.parametrize(
    "change",
    [
        ("super()", "super(Block, self)"),
        ("'''A block.'''", ""),
        ("width: int", "width"),
        ("# a comment", ""),
        ("y = self.fc(x)", "y = (self.fc(x,))"),
        ("torch.rand([4, 4])", "torch.randn(8, 4)"),
        ("def get_inputs", "batch = 16\n\ndef helper():\n    return batch\n\ndef get_inputs"),
        ("import torch\n", "import torch\nimport os, sys\n"),
        ("def get_inputs", "if __name__ == '__main__':\n    print(Block(3))\n\ndef get_inputs"),
    ],
)
def test_what_changes_nothing_does_not_change_the_structure(change: tuple[str, str]) -> None:
    assert BLOCK.replace(*change) != BLOCK
    assert same(BLOCK, BLOCK.replace(*change))


def test_a_helper_or_number_of_the_file_counts_where_a_class_uses_it() -> None:
    using = BLOCK.replace("+ x", "+ SCALE * x")
    assert not same("SCALE = 2\n" + using, "SCALE = 3\n" + using)
    assert same("SCALE = 2\n" + using, "FACTOR = 2\n" + using.replace("SCALE", "FACTOR"))
    helped = BLOCK.replace("+ x", "+ twist(x)")
    assert not same(
        "def twist(t):\n    return t * 2\n" + helped, "def twist(t):\n    return t * 3\n" + helped
    )


def test_a_parameter_that_hides_a_number_of_the_file_does_not_use_it() -> None:
    assert same(BLOCK, "width = 512\n" + BLOCK)


def test_an_empty_constructor_may_be_left_out() -> None:
    short = "class A(nn.Module):\n    def forward(self, x):\n        return x.relu()\n"
    long = short.replace(
        "    def forward",
        "    def __init__(self):\n        super(A, self).__init__()\n\n    def forward",
    )
    assert same(short, long)
    assert not same(
        short, long.replace("super(A, self).__init__()", "super().__init__()\n        self.a = 1")
    )


@pytest.mark.parametrize(
    "pattern",
    [
        "if True:\n    class M(nn.Module):\n        def forward(self, x):\n            return torch.{}(x)\n",
        "try:\n    def help(x):\n        return torch.{}(x)\nexcept ImportError:\n    pass\nclass M(nn.Module):\n    def forward(self, x):\n        return help(x)\n",
        "D = {{}}\nD['a'] = torch.{}\nclass M(nn.Module):\n    def forward(self, x):\n        return D['a'](x)\n",
        "D = {{}}\nD.update(a=torch.{})\nclass M(nn.Module):\n    def forward(self, x):\n        return D['a'](x)\n",
        "class M(nn.Module):\n    pass\nM.forward = lambda self, x: torch.{}(x)\n",
        "print(torch.{}(x))\n",
    ],
)
def test_what_a_class_depends_on_counts_wherever_it_stands(pattern: str) -> None:
    assert not same(pattern.format("relu"), pattern.format("tanh"))


def test_a_call_of_another_base_is_not_left_out() -> None:
    pattern = "class A(nn.Module):\n    pass\nclass M(A):\n    def __init__(self):\n        super({}, self).__init__()\n"
    assert not same(pattern.format("A"), pattern.format("M"))


def test_seeds_and_prints_of_a_file_do_not_count() -> None:
    assert same(BLOCK, BLOCK + "\ntorch.manual_seed(0)\nprint(torch.__version__)\n")


def test_texts_that_look_alike_once_joined_are_told_apart() -> None:
    assert not same("x = ['a b', 'c']", "x = ['a', 'b c']")
    assert not same("x = (1, 2), 3", "x = 1, (2, 3)")
    assert not same("x = a - (b - c)", "x = (a - b) - c")


@given(st.text(max_size=200))
def test_any_text_has_a_structure(code: str) -> None:
    found = structure_of(code)
    assert jaccard(found.shingles, found.shingles) == 1.0


def test_code_that_does_not_parse_says_so_and_is_compared_as_text() -> None:
    assert not normal_tokens("def (")[1]
    assert same("def   (", "def (")
    assert not same("def (", "def [")


def test_keys_and_shingles_are_the_same_in_every_process() -> None:
    program = "import sys; from kernelmill.problems.similarity.structure import structure_of as s; r = s(sys.stdin.read()); print(r.key.hex(), min(r.shingles), sum(r.shingles))"
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            input=BLOCK,
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed in "12"
    }
    assert len(printed) == 1
    # Published splits hang on these: a change here moves rows from train to validation.
    assert printed == {"9346146982293024929f8d35f38d61f6 387726881713914556 768187638022515825966\n"}
