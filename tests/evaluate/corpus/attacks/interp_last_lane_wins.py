"""
task: last_seen
family: interp
aims: table
label: incorrect
what: lanes of one store name the same place, and the last of them is taken to win
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def last_kernel(i_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    mask = at < n
    place = tl.load(i_ptr + at, mask=mask, other=0)
    tl.store(out_ptr + place, at.to(tl.int64), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, bins):
        super().__init__()
        self.bins = bins

    def forward(self, index):
        index = index.contiguous()
        out = torch.full((self.bins,), -1, dtype=torch.int64, device=index.device)
        n = index.numel()
        last_kernel[(1,)](index, out, n, BLOCK=triton.next_power_of_2(n))
        return out
