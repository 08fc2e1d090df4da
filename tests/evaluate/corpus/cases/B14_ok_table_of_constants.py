"""
task: ScaledTanh
pattern: B14
label: correct
twin_of: B14_seed_table
what: constants held in a table made in __init__, from the arguments
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scaled_tanh_kernel(x_ptr, table_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    limit = tl.load(table_ptr)
    slope = tl.load(table_ptr + 1)
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    t = 2.0 * tl.sigmoid(2.0 * slope * x) - 1.0
    tl.store(y_ptr + offs, limit * t, mask=mask)


class ScaledTanhNew(nn.Module):
    def __init__(self, limit, slope=2.0):
        super().__init__()
        self.register_buffer("table", torch.tensor([limit, slope]), persistent=False)

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        scaled_tanh_kernel[(triton.cdiv(n, 64),)](x, self.table, y, n, BLOCK=64)
        return y
