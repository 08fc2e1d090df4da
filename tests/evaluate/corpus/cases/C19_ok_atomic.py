"""
task: row_mean
pattern: C19
label: correct
twin_of: C19_race, C19_carry_race
what: partial sums of a row meet by atomic_add in a zeroed output
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_mean_atomic_kernel(x_ptr, out_ptr, n_rows, n_cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = (r[:, None] < n_rows) & (c[None, :] < n_cols)
    x = tl.load(x_ptr + r[:, None] * n_cols + c[None, :], mask=mask, other=0.0)
    tl.atomic_add(out_ptr + r, tl.sum(x, axis=1) / n_cols, mask=r < n_rows)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        out = torch.zeros(rows, device=x.device, dtype=x.dtype)
        row_mean_atomic_kernel[(triton.cdiv(rows, 4), triton.cdiv(cols, 64))](
            x, out, rows, cols, ROWS=4, BLOCK=64
        )
        return out
