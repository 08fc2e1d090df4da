"""
task: wide_softmax
pattern: C3
label: correct
twin_of: C3_zeros, C3_uniform
what: the real thing, in two passes of 1024 columns
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    base = x_ptr + row * n_cols
    top = tl.full((BLOCK,), -float("inf"), tl.float32)
    for start in range(0, n_cols, BLOCK):
        c = start + tl.arange(0, BLOCK)
        top = tl.maximum(top, tl.load(base + c, mask=c < n_cols, other=-float("inf")))
    m = tl.max(top, axis=0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n_cols, BLOCK):
        c = start + tl.arange(0, BLOCK)
        total += tl.exp(tl.load(base + c, mask=c < n_cols, other=-float("inf")) - m)
    inverse = 1.0 / tl.sum(total, axis=0)
    for start in range(0, n_cols, BLOCK):
        c = start + tl.arange(0, BLOCK)
        mask = c < n_cols
        tl.store(y_ptr + row * n_cols + c, tl.exp(tl.load(base + c, mask=mask) - m) * inverse, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, cols = x.shape
        softmax_kernel[(rows,)](x, y, cols, BLOCK=1024)
        return y
