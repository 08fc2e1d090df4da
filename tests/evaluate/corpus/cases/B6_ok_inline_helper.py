"""
task: GatedUnit
pattern: B6
label: correct
twin_of: B6_static_pointer
what: small jit helpers that Triton inlines; source held in no string
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sigmoid(v):
    return 1.0 / (1.0 + tl.exp(-v))


@triton.jit
def project(x, w_ptr, b_ptr, rn, rk, F, HAS_BIAS: tl.constexpr):
    w = tl.load(w_ptr + rn[None, :] * F + rk[:, None], mask=(rn[None, :] < F) & (rk[:, None] < F), other=0.0)
    y = tl.dot(x, w, input_precision="ieee")
    if HAS_BIAS:
        y += tl.load(b_ptr + rn, mask=rn < F, other=0.0)[None, :]
    return y


@triton.jit
def gated_kernel(
    x_ptr,
    wv_ptr,
    bv_ptr,
    wg_ptr,
    bg_ptr,
    y_ptr,
    rows,
    F,
    HAS_BIAS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_F: tl.constexpr,
):
    rm = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rf = tl.arange(0, BLOCK_F)
    mask = (rm[:, None] < rows) & (rf[None, :] < F)
    x = tl.load(x_ptr + rm[:, None] * F + rf[None, :], mask=mask, other=0.0)
    value = project(x, wv_ptr, bv_ptr, rf, rf, F, HAS_BIAS)
    gate = project(x, wg_ptr, bg_ptr, rf, rf, F, HAS_BIAS)
    tl.store(y_ptr + rm[:, None] * F + rf[None, :], value * sigmoid(gate), mask=mask)


class GatedUnitNew(nn.Module):
    def __init__(self, features, bias=True):
        super().__init__()
        self.value = nn.Linear(features, features, bias=bias)
        self.gate = nn.Linear(features, features, bias=bias)

    def forward(self, x):
        x = x.contiguous()
        F = x.shape[-1]
        rows = x.numel() // F
        y = torch.empty_like(x)
        block = max(16, triton.next_power_of_2(F))
        gated_kernel[(triton.cdiv(rows, 16),)](
            x,
            self.value.weight,
            self.value.bias,
            self.gate.weight,
            self.gate.bias,
            y,
            rows,
            F,
            HAS_BIAS=self.value.bias is not None,
            BLOCK_M=16,
            BLOCK_F=block,
        )
        return y
