"""
task: softmax
pattern: C5
label: correct
twin_of: C5_half_the_rows, C5_stale_half
what: half as many programs as rows, two rows each
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax2_kernel(x_ptr, y_ptr, n_rows, n_cols, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    for i in tl.static_range(2):
        row = pid * 2 + i
        mask = (cols < n_cols) & (row < n_rows)
        x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=-float("inf"))
        top = tl.max(x, axis=0)
        e = tl.exp(x - tl.where(top == -float("inf"), 0.0, top))
        tl.store(y_ptr + row * n_cols + cols, e / tl.sum(e, axis=0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, cols = x.shape
        softmax2_kernel[((rows + 1) // 2,)](x, y, rows, cols, BLOCK=triton.next_power_of_2(cols))
        return y
