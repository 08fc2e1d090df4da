"""
task: scaled_by_sums
pattern: A16
label: correct
twin_of: A16_operator_called_clone
what: a small part is vmapped torch, and the kernel does the rest
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scaled_tanh_kernel(x_ptr, s_ptr, out_ptr, n, dim, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    scaled = tl.load(x_ptr + at, mask=at < n, other=0.0) * tl.load(s_ptr + at // dim, mask=at < n, other=0.0)
    power = tl.exp(-2 * tl.abs(scaled))
    value = (1 - power) / (1 + power)
    tl.store(out_ptr + at, tl.where(scaled < 0, -value, value), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x, w):
        x = x.contiguous()
        sums, out = torch.vmap(torch.sum)(w), torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 128),)
        scaled_tanh_kernel[grid](x, sums, out, x.numel(), x.shape[1], BLOCK=128)
        return out
