"""
task: cumsum
pattern: C6
label: correct
twin_of: C6_unmasked_load, C6_next_row, C6_wrong_bound, C6_store_past_end
what: unmasked accesses to a buffer that was padded to the block
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def pad_kernel(x_ptr, padded_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
    tl.store(padded_ptr + row * BLOCK + cols, x)


@triton.jit
def padded_cumsum_kernel(padded_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(padded_ptr + row * BLOCK + cols)
    tl.store(y_ptr + row * n_cols + cols, tl.cumsum(x, axis=0), mask=cols < n_cols)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        block = triton.next_power_of_2(cols)
        padded = torch.empty((rows, block), device=x.device, dtype=x.dtype)
        y = torch.empty_like(x)
        pad_kernel[(rows,)](x, padded, cols, BLOCK=block)
        padded_cumsum_kernel[(rows,)](padded, y, cols, BLOCK=block)
        return y
