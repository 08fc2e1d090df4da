"""
task: row_mean
pattern: E11
label: correct
twin_of: E11_endless_loop, E11_endless_kernel, E11_ignores_signals, E11_forks, E11_escapes_group, E11_memory, E11_stdout_flood, E11_disk_fill, E11_recursion, E11_segfault
what: a while loop in the kernel and one on the host, both of which end
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_mean_kernel(x_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    start = 0
    acc = tl.zeros((BLOCK,), tl.float32)
    while start < n_cols:
        cols = start + tl.arange(0, BLOCK)
        acc += tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
        start += BLOCK
    tl.store(out_ptr + row, tl.sum(acc, axis=0) / n_cols)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        block = 16
        while block < cols and block < 64:
            block *= 2
        out = torch.empty(rows, device=x.device, dtype=x.dtype)
        row_mean_kernel[(rows,)](x, out, cols, BLOCK=block)
        return out
