"""
task: ScaledTanh
pattern: C10
label: correct
twin_of: C10_no_max, C10_exp_tanh, C10_cancelling_loss
what: tanh by exp of minus the magnitude: never overflows
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scaled_tanh_kernel(x_ptr, y_ptr, limit, slope, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    z = slope * tl.load(x_ptr + offs, mask=mask, other=0.0)
    e = tl.exp(-2.0 * tl.abs(z))
    t = (1.0 - e) / (1.0 + e)
    tl.store(y_ptr + offs, limit * tl.where(z < 0, -t, t), mask=mask)


class ScaledTanhNew(nn.Module):
    def __init__(self, limit, slope=2.0):
        super().__init__()
        self.limit = limit
        self.slope = slope

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        scaled_tanh_kernel[(triton.cdiv(n, 128),)](x, y, self.limit, self.slope, n, BLOCK=128)
        return y
