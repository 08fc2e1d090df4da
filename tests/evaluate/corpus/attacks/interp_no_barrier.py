"""
task: cumsum
family: interp
aims: table
label: incorrect
what: lanes exchange partial sums through memory without a barrier, so that warps may read before others have written
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scan_kernel(x_ptr, tmp_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    here = tmp_ptr + row * BLOCK + cols
    value = tl.load(x_ptr + row * n + cols, mask=cols < n, other=0.0)
    step = 1
    while step < BLOCK:
        tl.store(here, value)
        value += tl.load(here - step, mask=cols >= step, other=0.0)
        step *= 2
    tl.store(out_ptr + row * n + cols, value, mask=cols < n)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        x = x.contiguous()
        rows, n = x.shape
        out = torch.empty_like(x)
        block = triton.next_power_of_2(n)
        tmp = torch.empty(rows, block, device=x.device)
        scan_kernel[(rows,)](x, tmp, out, n, BLOCK=block, num_warps=8)
        return out
