"""
task: cumsum
family: interp
aims: table
label: incorrect
what: programs hand the running sum on through memory by volatile loads, and rely on being run in order
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scan_kernel(x_ptr, carry_ptr, out_ptr, n, blocks, BLOCK: tl.constexpr):
    row, block = tl.program_id(0), tl.program_id(1)
    cols = block * BLOCK + tl.arange(0, BLOCK)
    mask = cols < n
    x = tl.load(x_ptr + row * n + cols, mask=mask, other=0.0)
    before = tl.load(carry_ptr + row * (blocks + 1) + block, volatile=True)
    tl.store(carry_ptr + row * (blocks + 1) + block + 1, before + tl.sum(x, axis=0))
    tl.store(out_ptr + row * n + cols, before + tl.cumsum(x, axis=0), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        x = x.contiguous()
        rows, n = x.shape
        out = torch.empty_like(x)
        blocks = triton.cdiv(n, 32)
        carry = torch.zeros(rows, blocks + 1, device=x.device)
        scan_kernel[(rows, blocks)](x, carry, out, n, blocks, BLOCK=32)
        return out
