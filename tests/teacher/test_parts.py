"""The teacher's parts on small texts: kernels made plain, launches, the constructor that is kept."""

from __future__ import annotations

import ast

import pytest

from kernelmill.teacher.skeleton import assemble, forward_of

ORIGINAL = '''
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

WIDTH = 8
HEIGHT = 9

def start(width):
    return math.sqrt(width)

class Part(nn.Module):
    """Holds a weight."""
    def __init__(self, width):
        super(Part, self).__init__()
        self.weight = nn.Parameter(torch.full((width,), start(width)))
        self.reset()

    def reset(self):
        self.ready = True

    def forward(self, x):
        return x * self.weight

class Model(nn.Module):
    """Scales."""
    def __init__(self, WIDTH, depth=2):
        super(Model, self).__init__()
        self.parts = nn.ModuleList([Part(WIDTH) for _ in range(depth)])

    def helper(self, x):
        return F.relu(x)

    def forward(self, x, scale: float = 1.0):
        for part in self.parts:
            x = part(x)
        return self.helper(x) * scale

def get_inputs():
    return [torch.randn(HEIGHT, WIDTH)]
'''


@pytest.fixture(scope="module")
def made() -> str:
    return assemble(ORIGINAL, "Model", "ModelNew", ["def kernel(): ..."], ["return x"], ["import triton"])


def test_the_constructor_and_what_it_needs_are_kept_and_nothing_that_computes(made: str) -> None:
    module = ast.parse(made)
    classes = {node.name: node for node in module.body if isinstance(node, ast.ClassDef)}
    assert list(classes) == ["Part", "ModelNew"]
    methods = {
        name: [node.name for node in owner.body if isinstance(node, ast.FunctionDef)]
        for name, owner in classes.items()
    }
    assert methods == {"Part": ["__init__", "reset"], "ModelNew": ["__init__", "forward"]}
    assert [node.name for node in module.body if isinstance(node, ast.FunctionDef)] == ["kernel", "start"]


def test_only_imports_that_are_used_come_along(made: str) -> None:
    imports = [ast.unparse(n) for n in ast.parse(made).body if isinstance(n, ast.Import | ast.ImportFrom)]
    assert imports == ["import math", "import torch", "import torch.nn as nn", "import triton"]


def test_a_constant_is_not_taken_for_an_argument_of_the_same_name(made: str) -> None:
    assert not [node for node in ast.parse(made).body if isinstance(node, ast.Assign)]


def test_the_new_class_calls_its_own_super(made: str) -> None:
    assert "super(ModelNew, self).__init__()" in made
    assert "super(Part, self).__init__()" in made


def test_forward_keeps_its_signature(made: str) -> None:
    assert "def forward(self, x, scale: float=1.0):" in made
    assert [arg.arg for arg in forward_of(ORIGINAL, "Model").args.args] == ["self", "x", "scale"]
