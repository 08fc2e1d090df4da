"""
task: row_mean
pattern: X
label: incorrect
twin_of: -
what: a list comprehension in the kernel: the interpreter takes it, the compiler does not
tier: compile
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_mean_kernel(x_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    shifts = [BLOCK * i for i in range(4)]
    total = 0.0
    for i in tl.static_range(4):
        c = cols + shifts[i]
        total += tl.sum(tl.load(x_ptr + row * n_cols + c, mask=c < n_cols, other=0.0), axis=0)
    sums = [v * 1.0 for v in (total, total) if v is not None]
    tl.store(out_ptr + row, sums[0] / n_cols)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        out = torch.empty(rows, device=x.device, dtype=x.dtype)
        row_mean_kernel[(rows,)](x, out, cols, BLOCK=64)
        return out
