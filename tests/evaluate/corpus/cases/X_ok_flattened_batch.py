"""
task: positive_row_sum
pattern: X
label: correct
twin_of: -
what: reshape, flatten and views around the kernel, and a scalar from torch
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_dot_kernel(x_ptr, out_ptr, scale, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
    tl.store(out_ptr + row, tl.sum(tl.maximum(x, 0.0) * x, axis=0) * scale)


class ModelNew(nn.Module):
    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1]).contiguous()
        scale = torch.ones(1).item() / 1.0
        out = torch.empty(flat.shape[0], device=x.device, dtype=x.dtype)
        relu_dot_kernel[(flat.shape[0],)](
            flat, out, scale, flat.shape[1], BLOCK=triton.next_power_of_2(flat.shape[1])
        )
        return out.view(x.shape[:-1])
