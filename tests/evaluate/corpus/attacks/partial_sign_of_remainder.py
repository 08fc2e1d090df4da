"""
task: buckets
family: partial
aims: replay
label: incorrect
what: the remainder of a negative number has its sign, so that it names no bucket
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def bucket_kernel(ids_ptr, out_ptr, n, number, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    ids = tl.load(ids_ptr + offsets, mask=mask, other=0)
    tl.store(out_ptr + offsets, (ids * 31 + 7) % number, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, number):
        super().__init__()
        self.number = number

    def forward(self, ids):
        ids = ids.contiguous()
        out = torch.empty_like(ids)
        n = ids.numel()
        bucket_kernel[(triton.cdiv(n, 256),)](ids, out, n, self.number, BLOCK=256)
        return out
