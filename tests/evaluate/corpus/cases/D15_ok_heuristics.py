"""
task: add_gelu
pattern: D15
label: correct
twin_of: D15_tunes_in_forward, D15_warms_up_in_init
what: heuristics in place of tuning
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.heuristics({"EVEN": lambda args: args["n_elements"] % args["BLOCK_SIZE"] == 0})
@triton.jit
def add_gelu_kernel(x_ptr, y_ptr, out_ptr, n_elements, BLOCK_SIZE: tl.constexpr, EVEN: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    if EVEN:
        s = tl.load(x_ptr + offsets) + tl.load(y_ptr + offsets)
        tl.store(out_ptr + offsets, 0.5 * s * (1.0 + tl.erf(s * 0.7071067811865476)))
    else:
        mask = offsets < n_elements
        s = tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask)
        tl.store(out_ptr + offsets, 0.5 * s * (1.0 + tl.erf(s * 0.7071067811865476)), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        out = torch.empty_like(x)
        n = out.numel()
        add_gelu_kernel[(triton.cdiv(n, 256),)](x, y, out, n, BLOCK_SIZE=256)
        return out
