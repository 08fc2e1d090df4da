"""
task: wide_mean_square
pattern: X
label: incorrect
twin_of: -
what: forgets the square; the task's size stands in the text, and in code that runs, without mattering
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl

COLUMNS = 4096


@triton.jit
def mean_square_kernel(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
    tl.store(y_ptr + row, tl.sum(x, axis=0) / n_cols)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        assert x.shape[1] <= COLUMNS
        y = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)
        block = min(triton.next_power_of_2(x.shape[1]), 4096)
        mean_square_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=block)
        return y
