"""A cast to fewer bits is told where numbers lose by it, not where an output or a parameter gets its type."""

import pytest

from kernelmill.evaluate.static.examine import examine
from tests.cost import growth
from tests.evaluate.corpus import case

KERNEL = """\
import torch, triton, triton.language as tl
@triton.jit
def k(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    acc = tl.load(x + i, mask=i < n) * 2
    {0}
class ModelNew(torch.nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.fc = torch.nn.Linear(i, o){1}
    def forward(self, x):
        y = torch.empty_like(x)
        k[(1,)](x, y, x.numel(), B=16)
        return y
"""


def _severities(code: str) -> list[str]:
    return [flag.severity for flag in examine(code).flags if flag.code == "C7.downcast"]


@pytest.mark.parametrize(
    ("in_kernel", "in_init", "expected"),
    [
        ("tl.store(y + i, acc.to(tl.float16), mask=i < n)", "", []),
        ("c = acc.to(tl.float16); tl.store(y + i, c, mask=i < n)", "", []),
        ("c = acc.to(tl.float16); c = c * c; tl.store(y + i, c, mask=i < n)", "", ["soft"]),
        ("c = acc.to(tl.float16); tl.store(y + i, c + 1, mask=i < n)", "", ["soft"]),
        ("tl.store(y + i, acc, mask=i < n)", ".half()", ["info"]),
        ("tl.store(y + i, acc.to(tl.float16) * 2, mask=i < n)", ".half()", ["info", "soft"]),
    ],
)
def test_a_cast_is_soft_only_where_it_is_computed_with(
    in_kernel: str, in_init: str, expected: list[str]
) -> None:
    assert sorted(_severities(KERNEL.format(in_kernel, in_init))) == expected


def test_an_honest_kernel_of_half_precision_is_not_flagged_and_a_hidden_cast_is() -> None:
    assert _severities(case("C8_ok_fp32_accumulator").code) == []
    assert _severities(case("C7_fp16_dot").code) == ["soft"]


def test_many_casts_are_looked_at_in_time_that_grows_with_their_number() -> None:
    def code(casts: int) -> str:
        return KERNEL.format("\n    ".join(f"c{n} = acc.to(tl.float16)" for n in range(casts)), "")

    assert growth(examine, code, 250) < 64
