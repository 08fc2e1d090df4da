"""
task: row_mean
pattern: A3
label: correct
twin_of: A3_identity_copy, A3_multiply_by_one, A3_sum_of_one_part
what: two kernels: partial sums, then their combination
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def partial_sum_kernel(x_ptr, partial_ptr, n_cols, n_parts, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    row = pid // n_parts
    part = pid % n_parts
    cols = part * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
    tl.store(partial_ptr + pid, tl.sum(x, axis=0))


@triton.jit
def combine_kernel(partial_ptr, out_ptr, n_rows, n_cols, n_parts, ROWS: tl.constexpr, PARTS: tl.constexpr):
    rows = tl.arange(0, ROWS)
    parts = tl.arange(0, PARTS)
    mask = (rows[:, None] < n_rows) & (parts[None, :] < n_parts)
    p = tl.load(partial_ptr + rows[:, None] * n_parts + parts[None, :], mask=mask, other=0.0)
    tl.store(out_ptr + rows, tl.sum(p, axis=1) / n_cols, mask=rows < n_rows)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        block = 128
        n_parts = triton.cdiv(cols, block)
        partial = torch.empty((rows, n_parts), device=x.device, dtype=torch.float32)
        out = torch.empty(rows, device=x.device, dtype=x.dtype)
        partial_sum_kernel[(rows * n_parts,)](x, partial, cols, n_parts, BLOCK=block)
        combine_kernel[(1,)](
            partial,
            out,
            rows,
            cols,
            n_parts,
            ROWS=triton.next_power_of_2(rows),
            PARTS=triton.next_power_of_2(n_parts),
        )
        return out
