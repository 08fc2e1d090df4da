"""
task: softmax
pattern: A16
label: correct
twin_of: A16_kernel_is_python
what: a kernel is made in a function, and uses another kernel and a constant of that function
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


def made(infinite: bool):
    lowest = tl.constexpr(float("-inf") if infinite else -1e30)

    @triton.jit
    def shifted_exp(x):
        return tl.exp(x - tl.max(x, axis=0))

    @triton.jit
    def softmax_kernel(x_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
        row = tl.program_id(0)
        cols = tl.arange(0, BLOCK)
        mask = cols < n_cols
        e = shifted_exp(tl.load(x_ptr + row * n_cols + cols, mask=mask, other=lowest))
        tl.store(out_ptr + row * n_cols + cols, e / tl.sum(e, axis=0), mask=mask)

    return softmax_kernel


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kernel = made(infinite=True)

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        self.kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
