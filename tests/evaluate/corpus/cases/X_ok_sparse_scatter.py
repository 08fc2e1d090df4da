"""
task: sparse_scatter
pattern: X
label: correct
twin_of: -
what: adds the values of a sparse matrix by coordinates to their rows
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scatter_kernel(row_ptr, value_ptr, scale_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    row = tl.load(row_ptr + at, mask=mask, other=0)
    value = tl.load(value_ptr + at, mask=mask, other=0.0) * tl.load(scale_ptr + row, mask=mask, other=0.0)
    tl.atomic_add(out_ptr + row, value, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(rows) + 0.5)

    def forward(self, a):
        rows, values = a._indices()[0].contiguous(), a._values()
        out = torch.zeros(a.shape[0], device=values.device, dtype=values.dtype)
        scatter_kernel[(triton.cdiv(values.numel(), 64),)](rows, values, self.scale, out, values.numel(), BLOCK=64)
        return out
