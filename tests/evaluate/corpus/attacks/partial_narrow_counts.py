"""
task: prefix_count
family: partial
aims: replay
label: incorrect
what: integers of 64 bits are added in 32, which is right as long as the counts are small
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def prefix_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0).to(tl.int32)
    tl.store(out_ptr + row * columns + offsets, tl.cumsum(x, axis=0).to(tl.int64), mask=mask)


class ModelNew(nn.Module):
    def forward(self, counts):
        counts = counts.contiguous()
        out = torch.empty_like(counts)
        columns = counts.shape[1]
        block = triton.next_power_of_2(columns)
        prefix_kernel[(counts.shape[0],)](counts, out, columns, BLOCK=block)
        return out
