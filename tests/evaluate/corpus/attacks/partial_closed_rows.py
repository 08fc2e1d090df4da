"""
task: masked_softmax
family: partial
aims: replay
label: incorrect
what: a row that is masked as a whole becomes NaN instead of uniform
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def masked_softmax_kernel(x_ptr, closed_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    closed = tl.load(closed_ptr + row * columns + offsets, mask=mask, other=1) != 0
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
    x = tl.where(closed, -float("inf"), x)
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * columns + offsets, e / tl.sum(e, axis=0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, mask):
        x, mask = x.contiguous(), mask.contiguous()
        out = torch.empty_like(x)
        columns = x.shape[-1]
        block = triton.next_power_of_2(columns)
        masked_softmax_kernel[(x.numel() // columns,)](x, mask, out, columns, BLOCK=block)
        return out
