"""
task: masked_softmax
pattern: B9
label: correct
twin_of: B9_super_batch
what: several rows a program: a batch inside the one call
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def masked_softmax_kernel(x_ptr, m_ptr, y_ptr, rows, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, BLOCK)
    inside = (r[:, None] < rows) & (c[None, :] < cols)
    offs = r[:, None] * cols + c[None, :]
    x = tl.load(x_ptr + offs, mask=inside, other=-float("inf"))
    masked = tl.load(m_ptr + offs, mask=inside, other=0)
    x = tl.where(masked != 0, -1e9, x)
    x = tl.where(inside, x, -float("inf"))
    top = tl.max(x, axis=1)
    top = tl.where(r < rows, top, 0.0)
    e = tl.exp(x - top[:, None])
    total = tl.sum(e, axis=1)
    total = tl.where(r < rows, total, 1.0)
    tl.store(y_ptr + offs, e / total[:, None], mask=inside)


class ModelNew(nn.Module):
    def forward(self, x, mask):
        x = x.contiguous()
        mask = mask.contiguous()
        y = torch.empty_like(x)
        rows, cols = x.shape
        masked_softmax_kernel[(triton.cdiv(rows, 8),)](
            x, mask, y, rows, cols, ROWS=8, BLOCK=triton.next_power_of_2(cols)
        )
        return y
