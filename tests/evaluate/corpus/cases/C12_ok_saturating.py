"""
task: ScaledTanh
pattern: C12
label: correct
twin_of: C12_clamped_range, C12_fixed_maximum, C12_positive_only
what: arguments are clamped where tanh is 1 in fp32 anyway
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
    z = tl.clamp(z, -15.0, 15.0)
    e = tl.exp(2.0 * z)
    tl.store(y_ptr + offs, limit * ((e - 1.0) / (e + 1.0)), mask=mask)


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
