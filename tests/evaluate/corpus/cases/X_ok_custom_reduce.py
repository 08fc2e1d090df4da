"""
task: mean_and_variance
pattern: X
label: correct
twin_of: -
what: Welford's combination through tl.reduce over a tuple
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def combine(mean_a, m2_a, n_a, mean_b, m2_b, n_b):
    n = n_a + n_b
    delta = mean_b - mean_a
    ratio = tl.where(n == 0.0, 0.0, n_b / tl.where(n == 0.0, 1.0, n))
    return mean_a + delta * ratio, m2_a + m2_b + delta * delta * n_a * ratio, n


@triton.jit
def welford_kernel(x_ptr, mean_ptr, var_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=0.0)
    count = mask.to(tl.float32)
    mean, m2, n = tl.reduce((x, tl.zeros_like(x), count), 0, combine)
    tl.store(mean_ptr + row, mean)
    tl.store(var_ptr + row, m2 / n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        mean = torch.empty(rows, device=x.device, dtype=x.dtype)
        var = torch.empty_like(mean)
        welford_kernel[(rows,)](x, mean, var, cols, BLOCK=triton.next_power_of_2(cols))
        return mean, var
