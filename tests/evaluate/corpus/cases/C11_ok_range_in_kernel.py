"""
task: Swish
pattern: C11
label: correct
twin_of: C11_range_sniffing, C11_variance_sniffing
what: the range is asked inside the kernel, element by element, and both sides are exact
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def swish_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    x = tl.load(x_ptr + i, mask=m, other=0.0)
    e = tl.exp(-tl.abs(x))
    y = tl.where(x >= 0, x / (1.0 + e), x * e / (1.0 + e))
    tl.store(y_ptr + i, y, mask=m)


class SwishNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        swish_kernel[(triton.cdiv(n, 64),)](x, y, n, BLOCK=64)
        return y
