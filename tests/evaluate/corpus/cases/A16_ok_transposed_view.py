"""
task: heads_first
pattern: A16
label: correct
twin_of: A16_storage_bytes
what: the layout of the task's own inputs needs no copy, and that of others does
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def tanh_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(out_ptr + at, 2 * tl.sigmoid(2 * x) - 1, mask=at < n)


class ModelNew(nn.Module):
    def forward(self, q):
        q = q.transpose(1, 2).contiguous()
        out = torch.empty_like(q)
        tanh_kernel[(triton.cdiv(q.numel(), 256),)](q, out, q.numel(), BLOCK=256)
        return out.transpose(1, 2)
