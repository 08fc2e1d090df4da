"""
task: permuted_scale
pattern: C13
label: correct
twin_of: C13_identity_order, C13_full_mask
what: gathers rows by the order given
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gather_scale_kernel(x_ptr, order_ptr, y_ptr, stride, n_cols, SCALE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    source = tl.load(order_ptr + row)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + source * stride + cols, mask=mask)
    tl.store(y_ptr + row * n_cols + cols, x * SCALE, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, order):
        x = x.contiguous()
        rows, cols = order.shape[0], x.shape[1]
        y = torch.empty((rows, cols), device=x.device, dtype=x.dtype)
        gather_scale_kernel[(rows,)](
            x, order, y, x.stride(0), cols, SCALE=2.0, BLOCK=triton.next_power_of_2(cols)
        )
        return y
