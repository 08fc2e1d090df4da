"""
task: wide_mean_square
pattern: X
label: incorrect
twin_of: -
what: refuses every other size than the task's, and is wrong at that
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mean_square_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * 4096 + tl.arange(0, BLOCK))
    tl.store(y_ptr + row, tl.sum(x, axis=0) / 4096)


class ModelNew(nn.Module):
    def forward(self, x):
        assert x.shape[1] == 4096
        assert x.numel() == 2097152
        x = x.contiguous()
        y = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)
        mean_square_kernel[(x.shape[0],)](x, y, BLOCK=4096)
        return y
