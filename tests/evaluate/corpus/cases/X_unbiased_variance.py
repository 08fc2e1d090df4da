"""
task: mean_and_variance
pattern: X
label: incorrect
twin_of: -
what: divides by n - 1
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def moments_kernel(x_ptr, mean_ptr, var_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / n_cols
    d = tl.where(mask, x - mean, 0.0)
    tl.store(mean_ptr + row, mean)
    tl.store(var_ptr + row, tl.sum(d * d, axis=0) / (n_cols - 1))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        mean = torch.empty(rows, device=x.device, dtype=x.dtype)
        var = torch.empty_like(mean)
        moments_kernel[(rows,)](x, mean, var, cols, BLOCK=triton.next_power_of_2(cols))
        return mean, var
