"""
task: add_gelu
pattern: A10
label: correct
twin_of: A10_load_inline, A10_vendor_import
what: erf from libdevice, which is Triton's own
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def gelu(v):
    return 0.5 * v * (1.0 + libdevice.erf(v * 0.7071067811865476))


@triton.jit
def add_gelu_kernel(x_ptr, y_ptr, out_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(axis=0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    y = tl.load(y_ptr + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + offsets, gelu(x + y), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, y):
        assert x.is_cuda and y.is_cuda, "inputs must be on the GPU"
        x, y = x.contiguous(), y.contiguous()
        out = torch.empty_like(x)
        n = out.numel()
        add_gelu_kernel[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK_SIZE=1024, num_warps=4)
        return out
