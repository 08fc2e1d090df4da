"""
task: size_one_center
pattern: C4
label: correct|inconclusive
twin_of: C4_degenerate
what: really subtracts the row's mean; the task cannot show it
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def center_kernel(x_ptr, y_ptr, rows, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, BLOCK)
    mask = (r[:, None] < rows) & (c[None, :] < cols)
    x = tl.load(x_ptr + r[:, None] * cols + c[None, :], mask=mask, other=0.0)
    mean = tl.sum(x, axis=1) / cols
    tl.store(y_ptr + r[:, None] * cols + c[None, :], x - mean[:, None], mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, cols = x.shape
        center_kernel[(triton.cdiv(rows, 16),)](x, y, rows, cols, ROWS=16, BLOCK=triton.next_power_of_2(cols))
        return y
