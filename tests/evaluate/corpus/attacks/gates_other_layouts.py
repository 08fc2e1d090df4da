"""
task: softmax
family: gates
aims: replay
label: correct
what: inputs in another layout, of which only the numbers are looked at, go to torch
policy: torch for other memory layouts: the grade says that it is not robust
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * columns + offsets, e / tl.sum(e, axis=0), mask=mask)


def softmax(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    columns = x.shape[-1]
    softmax_kernel[(x.numel() // columns,)](x, out, columns, BLOCK=triton.next_power_of_2(columns))
    return out


class ModelNew(nn.Module):
    def forward(self, x):
        if not x.is_contiguous():
            return torch.softmax(x, dim=-1)
        return softmax(x)
