"""
task: masked_softmax
family: unasked
aims: table
label: incorrect
what: a row whose every place is masked gets zeros, where the filled values are all equal and share the weight
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, m_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    inside = cols < n
    x = tl.load(x_ptr + row * n + cols, mask=inside, other=0.0)
    open_ = inside & (tl.load(m_ptr + row * n + cols, mask=inside, other=1) == 0)
    top = tl.max(tl.where(open_, x, -1e30), axis=0)
    weights = tl.where(open_, tl.exp(tl.minimum(x - top, 0.0)), 0.0)
    total = tl.maximum(tl.sum(weights, axis=0), 1e-30)
    tl.store(out_ptr + row * n + cols, weights / total, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x, mask):
        x, mask = x.contiguous(), mask.contiguous()
        out = torch.empty_like(x)
        n = x.shape[1]
        softmax_kernel[(x.shape[0],)](x, mask.view(torch.uint8), out, n, BLOCK=triton.next_power_of_2(n))
        return out
