"""
task: cumsum
pattern: X
label: incorrect
twin_of: -
what: sums down the columns
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def cumsum_kernel(x_ptr, y_ptr, n_rows, n_cols, BLOCK: tl.constexpr):
    col = tl.program_id(0)
    rows = tl.arange(0, BLOCK)
    mask = rows < n_rows
    x = tl.load(x_ptr + rows * n_cols + col, mask=mask, other=0.0)
    tl.store(y_ptr + rows * n_cols + col, tl.cumsum(x, axis=0), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, cols = x.shape
        cumsum_kernel[(cols,)](x, y, rows, cols, BLOCK=triton.next_power_of_2(rows))
        return y
