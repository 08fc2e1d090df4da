"""
task: softplus
pattern: C12
label: incorrect
twin_of: -
what: the identity from six on and zero below minus six, which the task's own inputs hardly ever reach
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softplus_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    y = tl.where(x > 6.0, x, tl.log(1.0 + tl.exp(x)))
    tl.store(y_ptr + offs, tl.where(x < -6.0, 0.0, y), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        softplus_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
        return y
