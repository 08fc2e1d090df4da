"""
task: broadcast_loss
pattern: C15
label: correct
twin_of: C15_broadcast_luck
what: the mean of an outer product is the product of the means
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def outer_mean_kernel(p_ptr, w_ptr, out_ptr, n_p, n_w, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    p = tl.sum(tl.load(p_ptr + offs, mask=offs < n_p, other=0.0), axis=0) / n_p
    w = tl.sum(tl.load(w_ptr + offs, mask=offs < n_w, other=0.0), axis=0) / n_w
    tl.store(out_ptr, p * w)


class ModelNew(nn.Module):
    def forward(self, prediction, weight):
        prediction, weight = prediction.contiguous(), weight.contiguous()
        out = torch.empty((), device=prediction.device, dtype=prediction.dtype)
        n_p, n_w = prediction.numel(), weight.numel()
        block = triton.next_power_of_2(max(n_p, n_w))
        outer_mean_kernel[(1,)](prediction, weight, out, n_p, n_w, BLOCK=block)
        return out
