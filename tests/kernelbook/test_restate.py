"""What is replaced in KernelBook's code means the same, and nothing else changes."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmill.kernelbook.restate import restate
from tests.kernelbook.book_rows import (
    AFFINE_NEW,
    CONV_NEW,
    LINEAR_TANH_NEW,
    MEAN_ABS_NEW,
    PRODUCT_NEW,
    SCORES_NEW,
)

IMPORT = "from torch._inductor.runtime.triton_heuristics import grid\n"


def grid() -> Any:
    """The definition that stands in for torch's."""
    names: dict[str, Any] = {}
    exec(restate(IMPORT).code, names)
    return names["grid"]


def test_the_grid_has_x_first_and_the_last_size_is_xs() -> None:
    assert grid()(256)({"XBLOCK": 128}) == (2,)
    assert grid()(257)({"XBLOCK": 128}) == (3,)
    assert grid()(5)({}) == (5,)
    assert grid()(512, 9)({"XBLOCK": 16, "YBLOCK": 64}) == (1, 8)
    assert grid()(4, 10, 100)({"XBLOCK": 32, "YBLOCK": 2, "ZBLOCK": 4}) == (4, 5, 1)


@given(
    numels=st.lists(st.integers(1, 10**7), min_size=1, max_size=3),
    blocks=st.lists(st.sampled_from([1, 2, 16, 1024]), min_size=3, max_size=3),
)
def test_a_grid_covers_every_element_and_no_program_is_without_one(
    numels: list[int], blocks: list[int]
) -> None:
    counts = grid()(*numels)(dict(zip(("XBLOCK", "YBLOCK", "ZBLOCK"), blocks, strict=True)))
    for numel, block, count in list(zip(reversed(numels), blocks, counts, strict=False))[:1]:
        assert (count - 1) * block < numel <= count * block
    if len(numels) == 2:
        # More programs than CUDA takes along y go on along z, as kernels of that size expect.
        covered = counts[1] * (counts[2] if len(counts) == 3 else 1)
        assert counts[1] <= 65535
        assert numels[0] <= covered * blocks[1]
    if len(numels) == 3:
        assert [-(-n // b) for n, b in zip(reversed(numels), blocks, strict=True)] == list(counts)


@pytest.mark.parametrize("code", [AFFINE_NEW, MEAN_ABS_NEW, LINEAR_TANH_NEW, SCORES_NEW, CONV_NEW])
def test_kernels_and_classes_stay_as_they_are_on_the_lines_where_they_were(code: str) -> None:
    new = restate(code)
    assert new.names == ["grid", "empty_strided_cuda", "_DeviceGuard"]
    for before, after in zip(code.splitlines(), new.code.splitlines(), strict=False):
        same = before == after or before.replace("torch.cuda._DeviceGuard", "torch.cuda.device") == after
        assert same or after in ("# grid: see the end", "# empty_strided_cuda: see the end")
    mine = {"grid", "empty_strided_cuda"}
    old_tree, new_tree = ast.parse(code), ast.parse(new.code)
    kept = [node for node in new_tree.body if not (isinstance(node, ast.FunctionDef) and node.name in mine)]
    kernels = [
        ast.dump(n)
        for n in old_tree.body
        if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name != "call"
    ]
    assert kernels == [
        ast.dump(n) for n in kept if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name != "call"
    ]


def test_a_name_that_a_row_gave_it_is_kept() -> None:
    code = restate("import torch\nempty = torch._C._dynamo.guards._empty_strided_cuda\n").code
    assert "def empty(size, stride, dtype):" in code


def test_only_what_is_there_is_replaced() -> None:
    assert restate(PRODUCT_NEW).names == ["empty_strided_cuda", "_DeviceGuard"]
    for code in (
        "from torch._inductor.runtime.triton_heuristics import grid, split_scan_grid\n",
        "from torch._inductor.runtime.triton_heuristics import grid as g\n",
        "import torch\nx = torch.cuda._DeviceGuards\n",
        "# from torch._inductor.runtime.triton_heuristics import grid\n",
    ):
        assert restate(code) == (code, [])


@given(st.text())
def test_text_without_those_names_is_not_touched(text: str) -> None:
    assert restate(text) == (text, [])
