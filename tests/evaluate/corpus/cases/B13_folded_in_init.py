"""
task: channel_affine
pattern: B13
label: correct
twin_of: -
what: scale and shift are folded in __init__: right for the same seed, not for loaded weights
grade: seed_only
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
        weight = torch.rand(channels) + 0.5
        bias = torch.randn(channels)
        mean = torch.randn(channels)
        var = torch.rand(channels) + 0.5
        scale = weight * torch.rsqrt(var + eps)
        self.register_buffer("scale", scale)
        self.register_buffer("shift", bias - mean * scale)

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        scale_shift_kernel[(triton.cdiv(n, 256),)](
            x, self.scale, self.shift, y, x.shape[1], x.shape[2], n, BLOCK=256
        )
        return y
