"""
task: rmsnorm
pattern: C2
label: correct
twin_of: C2_fixed_grid, C2_rows_per_program, C2_split_k
what: only the width of a loop step is autotuned: the grid does not depend on it
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.autotune(
    configs=[triton.Config({"BLOCK": b}, num_warps=w) for b, w in ((32, 1), (64, 2), (128, 4))],
    key=["n_cols"],
)
@triton.jit
def rmsnorm_loop_kernel(x_ptr, w_ptr, y_ptr, n_cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        c = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n_cols + c, mask=c < n_cols, other=0.0)
        acc += x * x
    scale = tl.rsqrt(tl.sum(acc, axis=0) / n_cols + eps)
    for start in range(0, n_cols, BLOCK):
        c = start + tl.arange(0, BLOCK)
        mask = c < n_cols
        x = tl.load(x_ptr + row * n_cols + c, mask=mask, other=0.0)
        tl.store(y_ptr + row * n_cols + c, x * scale * tl.load(w_ptr + c, mask=mask), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.rand(dim) + 0.5)

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, cols = x.shape
        rmsnorm_loop_kernel[(rows,)](x, self.weight, y, cols, self.eps)
        return y
