"""
task: scale_add_bf16
pattern: C17
label: correct
twin_of: C17_in_place, C17_view_of_input
what: works in place on a tensor of its own
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_scaled_kernel(out_ptr, x_ptr, y_ptr, scale, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=mask).to(tl.float32)
    tl.store(out_ptr + offs, x * scale + y, mask=mask)


@triton.jit
def relu_in_place_kernel(work_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    v = tl.maximum(tl.load(work_ptr + offs, mask=mask), 0.0)
    tl.store(work_ptr + offs, v, mask=mask)
    tl.store(out_ptr + offs, v.to(tl.bfloat16), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        n = x.numel()
        work = torch.empty(x.shape, device=x.device, dtype=torch.float32)
        out = torch.empty_like(x)
        grid = (triton.cdiv(n, 1024),)
        add_scaled_kernel[grid](work, x, y, self.scale, n, BLOCK=1024)
        relu_in_place_kernel[grid](work, out, n, BLOCK=1024)
        return out
