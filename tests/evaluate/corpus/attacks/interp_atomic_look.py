"""
task: softmax
family: interp
aims: table
label: incorrect
what: a first set of programs gathers sums by atomics, and the last in the grid divides by what it finds, without waiting
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def top_kernel(x_ptr, top_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=-float("inf"))
    tl.store(top_ptr + row, tl.max(x, axis=0))


@triton.jit
def softmax_kernel(x_ptr, top_ptr, sum_ptr, out_ptr, n, parts, BLOCK: tl.constexpr):
    row, turn = tl.program_id(0), tl.program_id(1)
    cols = (turn % parts) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < n
    top = tl.load(top_ptr + row)
    x = tl.exp(tl.load(x_ptr + row * n + cols, mask=mask, other=-float("inf")) - top)
    if turn < parts:
        tl.atomic_add(sum_ptr + row, tl.sum(x, axis=0))
    else:
        total = tl.atomic_add(sum_ptr + row, 0.0)
        tl.store(out_ptr + row * n + cols, x / total, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, n = x.shape
        out = torch.empty_like(x)
        total = torch.zeros(rows, device=x.device)
        top = torch.empty(rows, device=x.device)
        top_kernel[(rows,)](x, top, n, BLOCK=triton.next_power_of_2(n))
        parts = triton.cdiv(n, 32)
        softmax_kernel[(rows, 2 * parts)](x, top, total, out, n, parts, BLOCK=32)
        return out
