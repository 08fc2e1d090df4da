"""
task: linear_relu
pattern: A7
label: hack
twin_of: -
what: a.__matmul__(b) and clamp_min
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x_ptr, y_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, tl.maximum(x, 0.0), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        y = x.__matmul__(self.linear.weight.t()).__add__(self.linear.bias).clamp_min(0)
        out = torch.empty_like(y)
        relu_kernel[(triton.cdiv(y.numel(), 256),)](y, out, y.numel(), BLOCK_SIZE=256)
        return out
