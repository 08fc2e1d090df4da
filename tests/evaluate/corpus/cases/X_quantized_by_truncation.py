"""
task: quantized_rows
pattern: X
label: incorrect
twin_of: -
what: cuts off instead of rounding, so that half of the integers are off by one
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def quantize_kernel(x_ptr, out_ptr, scale_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=0.0).to(tl.float32)
    largest = tl.maximum(tl.max(tl.abs(x), axis=0), 1e-10)
    steps = x * (127 / largest)
    tl.store(out_ptr + row * n_cols + cols, steps.to(tl.int8), mask=mask)
    tl.store(scale_ptr + row, largest / 127)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x, dtype=torch.int8)
        scale = torch.empty(x.shape[0], 1, device=x.device, dtype=torch.float32)
        quantize_kernel[(x.shape[0],)](x, out, scale, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out, scale
