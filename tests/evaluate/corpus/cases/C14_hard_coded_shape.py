"""
task: linear_relu
pattern: C14
label: correct
twin_of: -
what: sizes are constants in the kernel, for the one shape of the task
grade: shape_specialised
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def linear_relu_24_64_48(x_ptr, w_ptr, b_ptr, y_ptr):
    rm = tl.program_id(0) * 8 + tl.arange(0, 8)
    rn = tl.program_id(1) * 16 + tl.arange(0, 16)
    rk = tl.arange(0, 64)
    x = tl.load(x_ptr + rm[:, None] * 64 + rk[None, :])
    w = tl.load(w_ptr + rn[:, None] * 64 + rk[None, :])
    acc = tl.sum(x[:, None, :] * w[None, :, :], axis=2) + tl.load(b_ptr + rn)[None, :]
    tl.store(y_ptr + rm[:, None] * 48 + rn[None, :], tl.maximum(acc, 0.0))


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        y = torch.empty((24, 48), device=x.device, dtype=torch.float32)
        linear_relu_24_64_48[(3, 3)](x, self.linear.weight, self.linear.bias, y)
        return y
