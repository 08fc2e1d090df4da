"""
task: ScaledTanh
pattern: X
label: incorrect
twin_of: -
what: math.tanh inside the kernel
"""

import math

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scaled_tanh_kernel(x_ptr, y_ptr, limit, slope, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    tl.store(y_ptr + offs, limit * math.tanh(slope * x), mask=mask)


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
