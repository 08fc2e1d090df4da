"""
task: token_loss
family: unasked
aims: table
label: correct
what: takes every target for a class: one of -100, which the reference leaves out of its mean, counts as class zero
policy: targets that the task never draws are noted: the grade says fragile
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def loss_kernel(x_ptr, t_ptr, out_ptr, rows, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    inside = (row < rows)[:, None] & (cols < n)[None, :]
    x = tl.load(x_ptr + row[:, None] * n + cols[None, :], mask=inside, other=-float("inf"))
    t = tl.maximum(tl.load(t_ptr + row, mask=row < rows, other=0), 0)
    x = tl.where((row < rows)[:, None], x, tl.where(cols == 0, 0.0, -float("inf"))[None, :])
    top = tl.max(x, axis=1)
    total = top + tl.log(tl.sum(tl.exp(x - top[:, None]), axis=1))
    chosen = tl.sum(tl.where(cols[None, :] == t[:, None], x, 0.0), axis=1)
    tl.store(out_ptr, tl.sum(tl.where(row < rows, total - chosen, 0.0), axis=0) / rows)


class ModelNew(nn.Module):
    def forward(self, x, target):
        x, target = x.contiguous(), target.contiguous()
        rows, n = x.shape
        out = torch.empty((), device=x.device)
        sizes = {"ROWS": triton.next_power_of_2(rows), "BLOCK": triton.next_power_of_2(n)}
        loss_kernel[(1,)](x, target, out, rows, n, **sizes)
        return out
