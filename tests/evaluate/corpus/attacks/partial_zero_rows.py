"""
task: unit_rows
family: partial
aims: replay
label: incorrect
what: the least norm is left out, so that a row of zeros, as padding is, becomes NaN
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def unit_rows_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + row * columns + offsets, x / tl.sqrt(tl.sum(x * x, axis=0)), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        columns = x.shape[-1]
        block = triton.next_power_of_2(columns)
        unit_rows_kernel[(x.numel() // columns,)](x, out, columns, BLOCK=block)
        return out
