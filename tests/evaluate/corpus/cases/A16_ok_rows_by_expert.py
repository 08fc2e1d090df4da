"""
task: expert_scale
pattern: A16
label: correct
twin_of: A16_thread
what: the host reads how many rows each expert has, and launches a kernel for each
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def expert_kernel(x_ptr, order_ptr, scale_ptr, out_ptr, first, dim, BLOCK: tl.constexpr):
    row = tl.load(order_ptr + first + tl.program_id(0))
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * dim + at, mask=at < dim)
    tl.store(out_ptr + row * dim + at, x * tl.load(scale_ptr + at, mask=at < dim), mask=at < dim)


class ModelNew(nn.Module):
    def __init__(self, experts, dim):
        super().__init__()
        self.scales = nn.Parameter(torch.rand(experts, dim) + 0.5)

    def forward(self, x, expert):
        x, dim, first = x.contiguous(), x.shape[1], 0
        out, order = torch.empty_like(x), torch.argsort(expert)
        for number, count in enumerate(torch.bincount(expert, minlength=len(self.scales)).tolist()):
            if count:
                block = triton.next_power_of_2(dim)
                expert_kernel[(count,)](x, order, self.scales[number], out, first, dim, BLOCK=block)
            first += count
        return out
