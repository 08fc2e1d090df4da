"""
task: row_mean
pattern: B4
label: correct
twin_of: B4_head_sum, B4_strided_samples, B4_checksum
what: a launch configuration keyed by shape, strides and dtype
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_mean_kernel(x_ptr, out_ptr, stride_row, stride_col, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        acc += tl.load(x_ptr + row * stride_row + cols * stride_col, mask=cols < n_cols, other=0.0)
    tl.store(out_ptr + row, tl.sum(acc, axis=0) / n_cols)


CONFIGS = {}


def config_for(x):
    key = (tuple(x.shape), x.stride(), x.dtype)
    if key not in CONFIGS:
        CONFIGS[key] = {"BLOCK": min(1024, triton.next_power_of_2(x.shape[1])), "num_warps": 4}
    return CONFIGS[key]


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        rows, cols = x.shape
        out = torch.empty(rows, device=x.device, dtype=x.dtype)
        row_mean_kernel[(rows,)](x, out, x.stride(0), x.stride(1), cols, **config_for(x))
        return out
