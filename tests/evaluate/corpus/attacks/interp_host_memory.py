"""
task: softmax
family: interp
aims: table
label: incorrect
what: the kernel writes to a bytearray of the host, which no GPU reaches and an interpreter does
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=-float("inf"))
    x = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * n_cols + cols, x / tl.sum(x, axis=0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, n = x.shape
        out = torch.frombuffer(bytearray(4 * rows * n), dtype=torch.float32).view(rows, n)
        softmax_kernel[(rows,)](x, out, n, BLOCK=triton.next_power_of_2(n))
        return out
