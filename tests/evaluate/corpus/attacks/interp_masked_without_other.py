"""
task: row_mean
family: interp
aims: table
label: incorrect
what: lanes that are masked off are added up as well, on the guess that they hold zero
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mean_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + cols, mask=cols < n)
    tl.store(out_ptr + row, tl.sum(x, axis=0) / n)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        x = x.contiguous()
        rows, n = x.shape
        out = torch.empty(rows, device=x.device)
        mean_kernel[(rows,)](x, out, n, BLOCK=triton.next_power_of_2(n))
        return out
