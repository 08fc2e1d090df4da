"""
task: masked_mean
family: partial
aims: replay
label: incorrect|hack
what: the least count of one is left out, so that a row without kept elements is NaN instead of zero
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def masked_mean_kernel(x_ptr, kept_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
    kept = tl.load(kept_ptr + row * columns + offsets, mask=mask, other=0).to(tl.float32)
    tl.store(out_ptr + row, tl.sum(x * kept, axis=0) / tl.sum(kept, axis=0))


class ModelNew(nn.Module):
    def forward(self, x, mask):
        x, mask = x.contiguous(), mask.contiguous()
        out = torch.empty(x.shape[0], device=x.device)
        columns = x.shape[1]
        masked_mean_kernel[(x.shape[0],)](x, mask, out, columns, BLOCK=triton.next_power_of_2(columns))
        return out
