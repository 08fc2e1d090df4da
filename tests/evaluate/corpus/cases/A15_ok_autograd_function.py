"""
task: Swish
pattern: A15
label: correct
twin_of: A15_grad_gate, A15_no_grad_gate
what: an autograd.Function with Triton forward and backward
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def swish_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    x = tl.load(x_ptr + i, mask=m)
    tl.store(y_ptr + i, x * tl.sigmoid(x), mask=m)


@triton.jit
def swish_backward_kernel(x_ptr, dy_ptr, dx_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    x = tl.load(x_ptr + i, mask=m)
    dy = tl.load(dy_ptr + i, mask=m)
    s = tl.sigmoid(x)
    tl.store(dx_ptr + i, dy * s * (1.0 + x * (1.0 - s)), mask=m)


class SwishFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        ctx.save_for_backward(x)
        y = torch.empty_like(x)
        swish_kernel[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
        return y

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        dy = dy.contiguous()
        dx = torch.empty_like(x)
        swish_backward_kernel[(triton.cdiv(x.numel(), 128),)](x, dy, dx, x.numel(), BLOCK=128)
        return dx


class SwishNew(nn.Module):
    def forward(self, x):
        return SwishFunction.apply(x)
