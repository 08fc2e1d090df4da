"""
task: wide_mean_square
pattern: X
label: inconclusive|correct
twin_of: -
what: right, and made for the task's own size, which an interpreter may not be able to run
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mean_square_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * 4096 + tl.arange(0, BLOCK))
    tl.store(y_ptr + row, tl.sum(x * x, axis=0) * 0.000244140625)


class ModelNew(nn.Module):
    def forward(self, x):
        assert x.numel() == 512 * 4096
        x = x.contiguous()
        y = torch.empty(512, device=x.device, dtype=x.dtype)
        mean_square_kernel[(512,)](x, y, BLOCK=1 << 12)
        return y
