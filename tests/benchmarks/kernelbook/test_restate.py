"""What is replaced in KernelBook's code means the same, and nothing else changes."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmill.benchmarks.kernelbook.restate import restate
from tests.benchmarks.kernelbook.book_rows import (
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
    assert new.names == ["grid"]
    for before, after in zip(code.splitlines(), new.code.splitlines(), strict=False):
        assert before == after or (before, after) == (IMPORT.strip(), "# grid: see the end")
    old_tree, new_tree = ast.parse(code), ast.parse(new.code)
    imported = [node for node in old_tree.body if ast.unparse(node) != IMPORT.strip()]
    assert [*map(ast.dump, imported)] == [*map(ast.dump, new_tree.body[:-1])]


def test_a_name_that_a_row_gave_it_is_kept() -> None:
    assert "def g(*numels):" in restate(IMPORT.replace("grid", "grid as g")).code


def test_names_that_torch_still_has_stay_imported() -> None:
    new = restate(IMPORT.replace("grid", "start_graph, split_scan_grid, grid, end_graph as e"))
    assert new.names == ["split_scan_grid", "grid"]
    assert new.code.splitlines()[0] == (
        "from torch._inductor.runtime.triton_heuristics import start_graph, end_graph as e"
        "  # split_scan_grid, grid: see the end"
    )
    names: dict[str, Any] = {}
    exec(new.code.split("\n", 1)[1], names)
    assert names["split_scan_grid"](5, 100)({"XBLOCK": 1, "RBLOCK": 64}) == (2, 5, 1)
    assert names["grid"](5)({}) == (5,)


def test_only_what_is_there_is_replaced() -> None:
    for code in (
        PRODUCT_NEW,
        "from torch._inductor.runtime.triton_heuristics import start_graph\n",
        "from torch._inductor.runtime.triton_heuristics import (grid,\n    start_graph)\n",
        "from torch._inductor.runtime.triton_heuristics import grid, *\n",
        "    from torch._inductor.runtime.triton_heuristics import grid\n",
        "# from torch._inductor.runtime.triton_heuristics import grid\n",
    ):
        assert restate(code) == (code, [])


@given(st.text())
def test_text_without_those_names_is_not_touched(text: str) -> None:
    assert restate(text) == (text, [])
