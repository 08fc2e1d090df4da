"""
task: wide_softmax
pattern: C21
label: correct
twin_of: C21_fewer_columns, C21_all_but_one_row
what: half of the columns at a time, all of them in the end
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    m = -float("inf")
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        c = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + c, mask=c < n_cols, other=-float("inf"))
        new = tl.maximum(m, tl.max(x, axis=0))
        s = s * tl.exp(m - new) + tl.sum(tl.exp(x - new), axis=0)
        m = new
    for start in range(0, n_cols, BLOCK):
        c = start + tl.arange(0, BLOCK)
        mask = c < n_cols
        x = tl.load(x_ptr + row * stride + c, mask=mask, other=-float("inf"))
        tl.store(y_ptr + row * stride + c, tl.exp(x - m) / s, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, cols = x.shape
        online_softmax_kernel[(rows,)](
            x, y, x.stride(0), cols, BLOCK=triton.next_power_of_2(cols // 2), num_warps=8
        )
        return y
