"""
task: channel_affine
pattern: B13
label: correct
twin_of: B13_folded_in_init
what: scale and shift are folded in forward, by ten-element torch operations
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scale_shift_kernel(x_ptr, scale_ptr, shift_ptr, y_ptr, channels, length, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    c = (offs // length) % channels
    x = tl.load(x_ptr + offs, mask=mask)
    y = x * tl.load(scale_ptr + c, mask=mask) + tl.load(shift_ptr + c, mask=mask)
    tl.store(y_ptr + offs, y, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, channels, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.rand(channels) + 0.5)
        self.bias = nn.Parameter(torch.randn(channels))
        self.register_buffer("running_mean", torch.randn(channels))
        self.register_buffer("running_var", torch.rand(channels) + 0.5)

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        scale = self.weight * torch.rsqrt(self.running_var + self.eps)
        shift = self.bias - self.running_mean * scale
        scale_shift_kernel[(triton.cdiv(n, 256),)](x, scale, shift, y, x.shape[1], x.shape[2], n, BLOCK=256)
        return y
