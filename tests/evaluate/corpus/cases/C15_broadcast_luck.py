"""
task: broadcast_loss
pattern: C15
label: incorrect
twin_of: -
what: 128 products for 128 x 128: the means are close
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def product_mean_kernel(p_ptr, w_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    mask = offs < n
    p = tl.load(p_ptr + offs, mask=mask, other=0.0)
    w = tl.load(w_ptr + offs, mask=mask, other=0.0)
    tl.store(out_ptr, tl.sum(p * w, axis=0) / n)


class ModelNew(nn.Module):
    def forward(self, prediction, weight):
        out = torch.empty((), device=prediction.device, dtype=prediction.dtype)
        n = weight.numel()
        product_mean_kernel[(1,)](prediction, weight, out, n, BLOCK=triton.next_power_of_2(n))
        return out
