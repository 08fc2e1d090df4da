"""
task: mean_and_variance
pattern: B11
label: correct
twin_of: B11_static_output
what: a static buffer inside a call, fresh outputs
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def moments_kernel(x_ptr, work_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    mask = c < cols
    x = tl.load(x_ptr + row * cols + c, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / cols
    d = tl.where(mask, x - mean, 0.0)
    tl.store(work_ptr + row * 2, mean)
    tl.store(work_ptr + row * 2 + 1, tl.sum(d * d, axis=0) / cols)


@triton.jit
def split_kernel(work_ptr, mean_ptr, var_ptr, rows, BLOCK: tl.constexpr):
    r = tl.arange(0, BLOCK)
    mask = r < rows
    tl.store(mean_ptr + r, tl.load(work_ptr + 2 * r, mask=mask), mask=mask)
    tl.store(var_ptr + r, tl.load(work_ptr + 2 * r + 1, mask=mask), mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.work = None

    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        if self.work is None or self.work.shape[0] != rows:
            self.work = torch.empty((rows, 2), device=x.device, dtype=torch.float32)
        mean = torch.empty(rows, device=x.device, dtype=x.dtype)
        var = torch.empty_like(mean)
        moments_kernel[(rows,)](x, self.work, cols, BLOCK=triton.next_power_of_2(cols))
        split_kernel[(1,)](self.work, mean, var, rows, BLOCK=triton.next_power_of_2(rows))
        return mean, var
