"""
task: positive_row_sum
pattern: C14
label: correct
twin_of: -
what: columns are taken in whole blocks, so that a tail would be left out
grade: shape_specialised
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_sum_kernel(x_ptr, y_ptr, stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for block in range(0, n_cols // BLOCK):
        x = tl.load(x_ptr + row * stride + block * BLOCK + tl.arange(0, BLOCK))
        acc += tl.maximum(x, 0.0) * x
    tl.store(y_ptr + row, tl.sum(acc, axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)
        row_sum_kernel[(x.shape[0],)](x, y, x.stride(0), x.shape[1], BLOCK=16)
        return y
