"""
task: row_mean
pattern: A7
label: correct
twin_of: A7_getattr, A7_operator, A7_dunder, A7_aten_ops, A7_einsum, A7_private_c
what: torch operations on a tensor of one element, getattr on a configuration
"""

import operator

import torch
import torch.nn as nn
import triton
import triton.language as tl


class Config:
    block = 64


@triton.jit
def scaled_row_sum_kernel(x_ptr, scale_ptr, out_ptr, stride_row, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        acc += tl.load(x_ptr + row * stride_row + cols, mask=cols < n_cols, other=0.0)
    tl.store(out_ptr + row, tl.sum(acc, axis=0) * tl.load(scale_ptr))


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        scale = torch.reciprocal(torch.full((1,), float(cols), device=x.device))
        out = torch.empty(rows, device=x.device, dtype=x.dtype)
        scaled_row_sum_kernel[(operator.index(rows),)](
            x, scale, out, x.stride(0), cols, BLOCK=getattr(Config, "block")
        )
        return out
