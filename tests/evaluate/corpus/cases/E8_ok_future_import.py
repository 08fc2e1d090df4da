"""
task: GatedUnit
pattern: E8
label: correct
twin_of: E8_shadow_module, E8_pip_install
what: __future__ and typing imports, annotations everywhere
"""

from __future__ import annotations

from typing import Optional, Tuple

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gated_row_kernel(x_ptr, wv_ptr, bv_ptr, wg_ptr, bg_ptr, y_ptr, F: tl.constexpr, HAS_BIAS: tl.constexpr):
    row = tl.program_id(0)
    k = tl.arange(0, F)
    n = tl.arange(0, F)
    x = tl.load(x_ptr + row * F + k)
    v = tl.sum(tl.load(wv_ptr + n[:, None] * F + k[None, :]) * x[None, :], axis=1)
    g = tl.sum(tl.load(wg_ptr + n[:, None] * F + k[None, :]) * x[None, :], axis=1)
    if HAS_BIAS:
        v += tl.load(bv_ptr + n)
        g += tl.load(bg_ptr + n)
    tl.store(y_ptr + row * F + n, v * tl.sigmoid(g))


def launch(x: torch.Tensor, value: nn.Linear, gate: nn.Linear) -> torch.Tensor:
    features: int = x.shape[-1]
    y = torch.empty_like(x)
    grid: Tuple[int] = (x.numel() // features,)
    bias: Optional[torch.Tensor] = value.bias
    gated_row_kernel[grid](
        x, value.weight, bias, gate.weight, gate.bias, y, F=features, HAS_BIAS=bias is not None
    )
    return y


class GatedUnitNew(nn.Module):
    def __init__(self, features: int, bias: bool = True) -> None:
        super().__init__()
        self.value = nn.Linear(features, features, bias=bias)
        self.gate = nn.Linear(features, features, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return launch(x.contiguous(), self.value, self.gate)
