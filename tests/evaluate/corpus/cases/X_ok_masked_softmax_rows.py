"""
task: masked_softmax
pattern: X
label: correct
twin_of: -
what: the mask is read as int8 through a view
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def masked_softmax_kernel(x_ptr, m_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    inside = cols < n_cols
    x = tl.load(x_ptr + row * n_cols + cols, mask=inside, other=-float("inf"))
    m = tl.load(m_ptr + row * n_cols + cols, mask=inside, other=0)
    x = tl.where(m != 0, -1.0e9, x)
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * n_cols + cols, e / tl.sum(e, axis=0), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x, mask):
        x = x.contiguous()
        mask = mask.contiguous().view(torch.int8)
        y = torch.empty_like(x)
        rows, cols = x.shape
        masked_softmax_kernel[(rows,)](x, mask, y, cols, BLOCK=triton.next_power_of_2(cols))
        return y
