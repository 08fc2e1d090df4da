"""Programs that run together give, bit for bit, what Triton's own interpreter gives one program after another."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

ROOT = Path(__file__).parents[3]
SIDES = ("stock", "ours")

HEAD = """
import triton
import triton.language as tl


@triton.jit
def double(v):
    return v + v


@triton.jit
def longest(a, b):
    return tl.where(a > b, a, b)


@triton.jit
def kernel(x, k, out, total, most, count, n, m, B: tl.constexpr, STRIDE: tl.constexpr):
    number = tl.program_id(0) + tl.program_id(1) * tl.num_programs(0)
    at = number * STRIDE + tl.arange(0, B)
    inside = at < n
    v = tl.load(x + at, mask=inside, other=1.0)
    mine = tl.load(k + number % m)
"""
TAIL = """
    tl.store(out + at, v, mask=inside)
"""

STATEMENTS = {
    "arithmetic": "v = v * 0.5 + number",
    "integers": "v = v + ((at * 7 - 3) // (mine + 1) % 5 + (at >> 1) - (at ^ 5) % 3)",
    "device function": "v = double(v) * 0.25",
    "a loop as long as the program's number": """
for i in range(0, number % 5):
    v += tl.load(x + (at + i) % n) * 0.125""",
    "a loop as long as a loaded value": """
for i in range(mine):
    v = v * 0.5 + i""",
    "a loop that starts elsewhere in each program": """
for i in range(number, number + 6, 2):
    v = v + i * 0.25""",
    "nested loops": """
for i in range(number % 3):
    for j in range(i, 3):
        v = v + i * 0.5 - j""",
    "a branch on a loaded value": """
if mine > 2:
    v = -v
else:
    v = v + 1""",
    "a branch on the program's number": """
if number % 3 == 0:
    v = v - tl.sum(v, axis=0) * 0.0625""",
    "a choice": "v = v + (1 if number % 2 == 0 else mine)",
    "a loop until a condition": """
left = mine
while left > 0:
    v = v * 0.5 + left
    left -= 2""",
    "an early return": """
if mine == 3:
    return""",
    "reductions": "v = v * 0.5 + tl.max(v, axis=0) - tl.min(v, axis=0) + tl.argmax(v, axis=0)",
    "a reduction by a function": "v = v * 0.5 - tl.reduce(v, 0, longest)",
    "a scan": "v = tl.cumsum(v, axis=0) * 0.25",
    "a scan by a function": "v = v * 0.5 + tl.associative_scan(v, 0, longest)",
    "a transposed block": "v = tl.reshape(tl.trans(tl.reshape(v, (4, B // 4))), (B,))",
    "an outer product": "v = tl.sum(v[:, None] * tl.arange(0, 4)[None, :], axis=1) * 0.25",
    "a product of matrices": """
w = tl.reshape(v, (4, B // 4))
v = v + tl.sum(tl.dot(w, tl.trans(w), input_precision="ieee")) * 0.001""",
    "a sort": "v = tl.sort(v)",
    "a gather": "v = tl.gather(v, (at * 3 + mine) % B, 0)",
    "a choice of lanes": "v = tl.where(at % 3 == mine % 3, v, v * 0.5)",
    "random numbers": "v = v * 0.5 + tl.rand(mine, at)",
    "half precision": "v = (v.to(tl.float16) * 0.5 + 1.0).to(tl.float32)",
    "a sum by atomics": "tl.atomic_add(total + at % 7, v)",
    "a masked sum by atomics": "tl.atomic_add(total + (at * 5) % 11, v, mask=at % 2 == 0)",
    "a maximum by atomics": "tl.atomic_max(most + at % 5, v)",
    "an integer maximum by atomics": "tl.atomic_max(count + 1 + at % 3, mine)",
    "a ticket": "v = v + tl.atomic_add(count, 1)",
    "an exchange": "tl.atomic_xchg(count + 5, number)",
    "a lock": """
while tl.atomic_cas(count + 6, 0, 1) == 1:
    pass
tl.store(count + 7, tl.load(count + 7) * 3 + number)
tl.atomic_xchg(count + 6, 0)""",
    "an update in place": "tl.store(x + at, v * 0.5, mask=inside)",
    "a value that another program writes": "v = v + tl.load(out + (at + B) % n) * 0.125",
    "a store that others repeat": "tl.store(count + 8, 5)",
    "a store that others contradict": "tl.store(count + 9 + number % 2, number)",
    "a counter without atomics": "tl.store(count + 11, tl.load(count + 11) + 1)",
    "a block pointer": """
p = tl.make_block_ptr(x, (n,), (1,), (number * STRIDE % n,), (B,), (0,))
v = v + tl.load(tl.advance(p, (mine,)), boundary_check=(0,), padding_option="zero") * 0.5""",
}


class Side:
    def __init__(self, name: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.evaluate.interpreter.side", name],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def send(self, request: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, str]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"it ended with {self._process.wait()}"
        return json.loads(line)  # type: ignore[no-any-return]

    def end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


@pytest.fixture(scope="module")
def sides() -> Iterator[list[Side]]:
    both = [Side(name) for name in SIDES]
    yield both
    for side in both:
        side.end()


def source_of(names: list[str]) -> str:
    body = "\n".join("    " + line for name in names for line in STATEMENTS[name].strip().splitlines())
    return HEAD + body + TAIL


def launch(
    names: list[str], grid: list[int], block: int, stride: int, n: int, numbers: list[int]
) -> dict[str, Any]:
    whole = [((number * 37) % 64 - 32) / 8 for number in range(n)]
    return {
        "source": source_of(names),
        "grid": grid,
        "constants": {"n": n, "m": len(numbers), "B": block, "STRIDE": stride},
        "tensors": {
            "x": ("float32", "float32", whole),
            "k": ("int32", "int32", numbers),
            "out": ("float32", "float32", [0.0] * n),
            "total": ("float32", "float32", [0.25] * 16),
            "most": ("float32", "float32", [-1.0] * 8),
            "count": ("int32", "int32", [0] * 16),
        },
    }


def check_same(sides: list[Side], request: dict[str, Any]) -> None:
    for side in sides:
        side.send(request)
    stock, ours = (side.answer() for side in sides)
    assert "error" not in stock, f"{stock}: not a comparison"
    assert ours == stock


@pytest.mark.parametrize("name", STATEMENTS)
def test_each_statement_gives_the_same(sides: list[Side], name: str) -> None:
    check_same(sides, launch([name], [9, 2], 16, 16, 270, [3, 0, 5, 1, 4, 2, 2]))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    names=st.lists(st.sampled_from(sorted(STATEMENTS)), min_size=1, max_size=5),
    grid=st.lists(st.integers(1, 7), min_size=1, max_size=2),
    block=st.sampled_from([8, 16, 32]),
    overlap=st.sampled_from([0, 0, 0, 1, 4]),
    n=st.integers(33, 200),
    numbers=st.lists(st.integers(0, 6), min_size=1, max_size=8),
)
def test_any_kernel_gives_the_same(
    sides: list[Side], names: list[str], grid: list[int], block: int, overlap: int, n: int, numbers: list[int]
) -> None:
    check_same(sides, launch(names, grid, block, block - overlap, n, numbers))
