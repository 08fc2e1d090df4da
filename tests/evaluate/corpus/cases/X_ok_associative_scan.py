"""
task: cumsum
pattern: X
label: correct
twin_of: -
what: tl.associative_scan with a combine function, and hints to the compiler
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add(a, b):
    return a + b


@triton.jit
def scan_kernel(x_ptr, y_ptr, stride, n_cols, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK >= 16)
    row = tl.program_id(0)
    cols = tl.max_contiguous(tl.multiple_of(tl.arange(0, BLOCK), 16), 16)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * stride + cols, mask=mask, other=0.0, eviction_policy="evict_first")
    tl.store(y_ptr + row * stride + cols, tl.associative_scan(x, 0, add), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, cols = x.shape
        scan_kernel[(rows,)](x, y, x.stride(0), cols, BLOCK=max(16, triton.next_power_of_2(cols)))
        return y
