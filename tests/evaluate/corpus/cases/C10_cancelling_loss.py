"""
task: logit_loss
pattern: C10
label: correct
twin_of: -
what: takes the probability from one and then its logarithm, which loses digits long before it overflows
grade: fragile
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def loss_kernel(x_ptr, t_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    p = tl.sigmoid(tl.load(x_ptr + offs, mask=mask, other=0.0))
    t = tl.load(t_ptr + offs, mask=mask, other=0.0)
    tl.store(y_ptr + offs, -(t * tl.log(p) + (1.0 - t) * tl.log(1.0 - p)), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, target):
        x, target = x.contiguous(), target.contiguous()
        y = torch.empty_like(x)
        loss_kernel[(triton.cdiv(x.numel(), 256),)](x, target, y, x.numel(), BLOCK=256)
        return y
