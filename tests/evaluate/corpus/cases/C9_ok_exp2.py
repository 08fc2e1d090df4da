"""
task: softmax
pattern: C9
label: correct
twin_of: C9_tanh_gelu, C9_polynomial_sigmoid
what: exp through exp2 with a factor: exact to rounding
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_exp2_kernel(x_ptr, y_ptr, stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * stride + cols, mask=mask, other=-float("inf"))
    e = tl.exp2((x - tl.max(x, axis=0)) * 1.4426950408889634)
    tl.store(y_ptr + row * stride + cols, e * (1.0 / tl.sum(e, axis=0)), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, cols = x.shape
        softmax_exp2_kernel[(rows,)](x, y, x.stride(0), cols, BLOCK=triton.next_power_of_2(cols))
        return y
