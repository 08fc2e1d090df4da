"""
task: layernorm
pattern: C20
label: correct
twin_of: -
what: offsets in 16 bits: right below 32,768 elements
grade: shape_specialised
tier: gpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def layernorm_kernel(x_ptr, w_ptr, b_ptr, y_ptr, n_cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int16)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    offs = (row * n_cols.to(tl.int16)).to(tl.int16) + cols.to(tl.int16)
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / n_cols
    d = tl.where(mask, x - mean, 0.0)
    y = d / tl.sqrt(tl.sum(d * d, axis=0) / n_cols + eps)
    tl.store(y_ptr + offs, y * tl.load(w_ptr + cols, mask=mask) + tl.load(b_ptr + cols, mask=mask), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, cols = x.shape
        layernorm_kernel[(rows,)](
            x, self.norm.weight, self.norm.bias, y, cols, self.norm.eps, BLOCK=triton.next_power_of_2(cols)
        )
        return y
