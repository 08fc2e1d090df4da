"""The teacher's parts on small texts: kernels made plain, launches, the constructor that is kept."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmill.generate.inductor.simplify import _largest_repeat, name_repeats, simplify
from kernelmill.generate.inductor.skeleton import assemble, forward_of

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


def evaluated(function: ast.FunctionDef, values: dict[str, int]) -> int:
    space: dict[str, object] = {}
    exec(compile(ast.fix_missing_locations(ast.Module([function], [])), "tried", "exec"), space)
    result = space[function.name](**values)  # type: ignore[operator]
    assert isinstance(result, int)
    return result


@st.composite
def arithmetic(draw: st.DrawFn, depth: int = 4) -> str:
    if depth == 0 or (draw(st.booleans()) and depth < 3):
        return draw(st.sampled_from(["a", "b", "c", "2", "7"]))
    left, right = draw(arithmetic(depth - 1)), draw(arithmetic(depth - 1))
    return f"({left} {draw(st.sampled_from(['+', '*', '-', '%']))} {right})"


@given(
    st.lists(arithmetic(), min_size=1, max_size=3), st.integers(1, 9), st.integers(1, 9), st.integers(1, 9)
)
def test_arithmetic_that_gets_a_name_keeps_its_value_and_is_written_once(
    parts: list[str], a: int, b: int, c: int
) -> None:
    doubled = [f"(1 + {part} * {part})" for part in parts]
    lines = [f"    total = total + g({part}, {parts[0]})" for part in doubled]
    text = "\n".join(
        ["def f(a, b, c):", "    g = lambda x, y: x - 3 * y", "    total = 0", *lines, "    return total"]
    )
    (before,) = ast.parse(text).body
    (after,) = ast.parse(text).body
    assert isinstance(before, ast.FunctionDef)
    assert isinstance(after, ast.FunctionDef)
    name_repeats(after)
    values = {"a": a, "b": b, "c": c}
    try:
        wanted = evaluated(before, values)
    except ZeroDivisionError:
        return
    assert evaluated(after, values) == wanted
    assert len(ast.unparse(after)) <= len(ast.unparse(before)) + 30 * ast.unparse(after).count("index")
    assert _largest_repeat(after.body) is None


def test_names_of_repeats_are_numbered_as_they_come() -> None:
    text = """
def f(a, b, c):
    x = g(a + b * c + a * 5, b)
    y = g((a + b * c + a * 5) % 7, (a * a * b + c * c) // 3)
    z = g(a * a * b + c * c, 1)
"""
    (function,) = ast.parse(text).body
    assert isinstance(function, ast.FunctionDef)
    name_repeats(function)
    assert ast.unparse(function).splitlines()[1:] == [
        "    index0 = a + b * c + a * 5",
        "    x = g(index0, b)",
        "    index1 = a * a * b + c * c",
        "    y = g(index0 % 7, index1 // 3)",
        "    z = g(index1, 1)",
    ]


def test_what_nothing_reads_is_dropped_from_a_kernel_with_what_only_it_read() -> None:
    text = """
def kernel(x, BLOCK):
    rnumel = 4
    half = rnumel // 2
    at = arange(BLOCK)[:]
    for step in range(3):
        unused = step
        store(x + at)
"""
    (function,) = ast.parse(text).body
    assert isinstance(function, ast.FunctionDef)
    simplify(function)
    assert ast.unparse(function).splitlines()[1:] == [
        "    at = arange(BLOCK)",
        "    for step in range(3):",
        "        store(x + at)",
    ]


def test_a_condition_that_is_always_true_and_a_second_name_for_an_index_are_gone() -> None:
    text = """
def kernel(a, ks0, ks2, BLOCK):
    stride_ak = 1
    xindex = arange(BLOCK)
    x0 = xindex
    if (ks2 == 1 and stride_ak == ks0 or (ks2 == ks2 and stride_ak == 1)) and (ks0 >= BLOCK and ks2 > 1):
        offset = hint(x0)
    else:
        offset = x0 % ks0
    if stride_ak == 2:
        offset = 0
    store(a + offset, full([1], 0.29899999499320984, tl.float32), eviction_policy="evict_last")
"""
    (function,) = ast.parse(text.replace("full(", "tl.full(")).body
    assert isinstance(function, ast.FunctionDef)
    simplify(function)
    assert ast.unparse(function).splitlines()[1:] == [
        "    xindex = arange(BLOCK)",
        "    if ks0 >= BLOCK and ks2 > 1:",
        "        offset = hint(xindex)",
        "    else:",
        "        offset = xindex % ks0",
        "    store(a + offset, tl.full([1], 0.299, tl.float32))",
    ]
