"""
task: scale_add_bf16
pattern: A9
label: correct
twin_of: A9_torch_compile, A9_jit_trace
what: helpers named for compiling, constexpr globals, no compiler used
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl

COMPILE_BLOCK = tl.constexpr(1024)


@triton.jit
def scale_add_relu_kernel(x_ptr, y_ptr, out_ptr, scale, n):
    offs = tl.program_id(0) * COMPILE_BLOCK + tl.arange(0, COMPILE_BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=mask).to(tl.float32)
    out = tl.maximum(x * scale + y, 0.0)
    tl.store(out_ptr + offs, out.to(out_ptr.dtype.element_ty), mask=mask)


def compile_grid(n):
    return (triton.cdiv(n, COMPILE_BLOCK.value),)


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        out = torch.empty_like(x)
        n = x.numel()
        scale_add_relu_kernel[compile_grid(n)](x, y, out, self.scale, n)
        return out
