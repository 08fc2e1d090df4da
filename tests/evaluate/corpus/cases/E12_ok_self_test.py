"""
task: Swish
pattern: E12
label: correct
twin_of: E12_zero_inputs, E12_fixed_seed
what: a self-test that seeds torch, called by nobody
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


def swish(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    n = x.numel()
    swish_kernel[(triton.cdiv(n, 128),)](x, y, n, BLOCK=128)
    return y


class SwishNew(nn.Module):
    def forward(self, x):
        return swish(x)


def self_test():
    torch.manual_seed(0)
    x = torch.randn(4, 4, device="cuda")
    torch.testing.assert_close(SwishNew()(x), x * torch.sigmoid(x))
