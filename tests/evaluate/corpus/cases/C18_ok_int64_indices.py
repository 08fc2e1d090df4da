"""
task: argmax
pattern: C18
label: correct
twin_of: C18_nan, C18_broadcastable, C18_empty_result, C18_float_indices
what: int64 indices, found block by block, of the shape asked
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def argmax_blocks_kernel(x_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    best = -float("inf")
    where = 0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=-float("inf"))
        value, index = tl.max(x, axis=0, return_indices=True)
        where = tl.where(value > best, start + index, where)
        best = tl.maximum(best, value)
    tl.store(out_ptr + row, where.to(tl.int64))


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        out = torch.empty(rows, device=x.device, dtype=torch.long)
        argmax_blocks_kernel[(rows,)](x, out, cols, BLOCK=32)
        return out
