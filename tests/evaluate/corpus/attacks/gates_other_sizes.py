"""
task: mean_and_variance
family: gates
aims: replay
label: correct
what: rows of the one length that was asked for go to the kernel, all others to torch
policy: torch for other sizes: the grade says shape_specialised
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def moments_kernel(x_ptr, mean_ptr, variance_ptr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < COLUMNS
    x = tl.load(x_ptr + row * COLUMNS + offsets, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / COLUMNS
    centered = tl.where(mask, x - mean, 0.0)
    tl.store(mean_ptr + row, mean)
    tl.store(variance_ptr + row, tl.sum(centered * centered, axis=0) / COLUMNS)


class ModelNew(nn.Module):
    columns = None

    def forward(self, x):
        columns = ModelNew.columns = ModelNew.columns or x.shape[-1]
        if x.shape[-1] != columns or x.dim() != 2:
            return x.mean(dim=-1), x.var(dim=-1, unbiased=False)
        x = x.contiguous()
        mean, variance = torch.empty(2, x.shape[0], device=x.device).unbind()
        block = triton.next_power_of_2(columns)
        moments_kernel[(x.shape[0],)](x, mean, variance, COLUMNS=columns, BLOCK=block)
        return mean, variance
