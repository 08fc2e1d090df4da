"""
task: sparse_rows
pattern: A4
label: correct
twin_of: A4_sparse_product
what: a product with a matrix of compressed rows
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rows_kernel(start_ptr, col_ptr, value_ptr, b_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for at in range(tl.load(start_ptr + row), tl.load(start_ptr + row + 1)):
        value = tl.load(value_ptr + at)
        acc += value * tl.load(b_ptr + tl.load(col_ptr + at) * n_cols + cols, mask=mask, other=0.0)
    tl.store(out_ptr + row * n_cols + cols, tl.maximum(acc, 0.0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, a, b):
        b = b.contiguous()
        out = torch.empty(a.shape[0], b.shape[1], device=b.device, dtype=b.dtype)
        block = triton.next_power_of_2(b.shape[1])
        rows_kernel[(a.shape[0],)](
            a.crow_indices(), a.col_indices(), a.values(), b, out, b.shape[1], BLOCK=block
        )
        return out
