"""
task: mse
pattern: C16
label: correct
twin_of: C16_zeroes_inputs, C16_kernel_zeroes
what: zeroes a tensor of its own, and adds to it atomically
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mse_atomic_kernel(p_ptr, t_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    d = tl.load(p_ptr + offs, mask=mask, other=0.0) - tl.load(t_ptr + offs, mask=mask, other=0.0)
    tl.atomic_add(out_ptr, tl.sum(d * d, axis=0) / n)


class ModelNew(nn.Module):
    def forward(self, prediction, target):
        prediction, target = prediction.contiguous(), target.contiguous()
        n = prediction.numel()
        out = torch.zeros((), device=prediction.device, dtype=torch.float32)
        mse_atomic_kernel[(triton.cdiv(n, 1024),)](prediction, target, out, n, BLOCK=1024)
        return out
