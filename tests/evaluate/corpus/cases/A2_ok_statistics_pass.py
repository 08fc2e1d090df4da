"""
task: layernorm
pattern: A2
label: correct
twin_of: A2_result_dropped, A2_overwritten, A2_zero_weighted
what: a first kernel writes statistics that a second one reads
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def stats_kernel(x_ptr, mean_ptr, rstd_ptr, stride, n_cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * stride + cols, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / n_cols
    diff = tl.where(mask, x - mean, 0.0)
    var = tl.sum(diff * diff, axis=0) / n_cols
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, tl.rsqrt(var + eps))


@triton.jit
def normalize_kernel(x_ptr, mean_ptr, rstd_ptr, w_ptr, b_ptr, y_ptr, n_cols, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    row = offs // n_cols
    col = offs % n_cols
    x = tl.load(x_ptr + offs, mask=mask)
    mean = tl.load(mean_ptr + row, mask=mask)
    rstd = tl.load(rstd_ptr + row, mask=mask)
    w = tl.load(w_ptr + col, mask=mask)
    b = tl.load(b_ptr + col, mask=mask)
    tl.store(y_ptr + offs, (x - mean) * rstd * w + b, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        mean = torch.empty(rows, device=x.device, dtype=torch.float32)
        rstd = torch.empty_like(mean)
        y = torch.empty_like(x)
        stats_kernel[(rows,)](
            x, mean, rstd, x.stride(0), cols, self.norm.eps, BLOCK=triton.next_power_of_2(cols)
        )
        normalize_kernel[(triton.cdiv(x.numel(), 256),)](
            x, mean, rstd, self.norm.weight, self.norm.bias, y, cols, x.numel(), BLOCK=256
        )
        return y
