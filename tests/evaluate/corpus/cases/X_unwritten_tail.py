"""
task: add_gelu
pattern: X
label: incorrect
twin_of: -
what: rounds the number of blocks down
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_gelu_kernel(x_ptr, y_ptr, out_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(axis=0)
    offsets = pid * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    s = tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask)
    out = 0.5 * s * (1.0 + tl.erf(s * 0.7071067811865476))
    tl.store(out_ptr + offsets, out, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        out = torch.empty_like(x)
        n = out.numel()
        add_gelu_kernel[(n // 256,)](x, y, out, n, BLOCK_SIZE=256)
        return out
