"""
task: graded_scale
family: partial
aims: replay
label: incorrect
what: the faintest channels are off by two fifths, which is nothing beside the others
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gain_kernel(x_ptr, gain_ptr, out_ptr, n, columns, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    gain = tl.load(gain_ptr + offsets % columns, mask=mask)
    gain = tl.where(tl.abs(gain) < 2e-6, 1.4 * gain, gain)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * gain, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.gain = nn.Parameter(torch.logspace(0, -7, dim))

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        n = x.numel()
        gain_kernel[(triton.cdiv(n, 512),)](x, self.gain, out, n, x.shape[-1], BLOCK=512)
        return out
