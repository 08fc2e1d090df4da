"""
task: peak_scaled
pattern: A16
label: correct
twin_of: A16_dlpack
what: the host reads the largest number, which a kernel has found, and gives it to the next kernel
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def largest_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(out_ptr + tl.program_id(0), tl.max(tl.abs(x), axis=0))


@triton.jit
def scale_kernel(x_ptr, out_ptr, peak, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n) / peak, mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        n, grid = x.numel(), (triton.cdiv(x.numel(), 512),)
        parts, out = torch.empty(grid, device=x.device), torch.empty_like(x)
        largest_kernel[grid](x, parts, n, BLOCK=512)
        scale_kernel[grid](x, out, parts.max().item(), n, BLOCK=512)
        return out
