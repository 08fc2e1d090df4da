"""
task: masked_mean
pattern: X
label: incorrect
twin_of: -
what: divides by the number of masked places, which is zero: infinite
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def masked_mean_kernel(x_ptr, mask_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    inside = cols < n_cols
    kept = tl.load(mask_ptr + row * n_cols + cols, mask=inside, other=0).to(tl.float32)
    x = tl.load(x_ptr + row * n_cols + cols, mask=inside, other=0.0)
    tl.store(out_ptr + row, tl.sum(x * kept, axis=0) / (tl.sum(kept, axis=0) - n_cols))


class ModelNew(nn.Module):
    def forward(self, x, mask):
        x, mask = x.contiguous(), mask.contiguous()
        rows, cols = x.shape
        out = torch.empty(rows, device=x.device, dtype=x.dtype)
        masked_mean_kernel[(rows,)](x, mask, out, cols, BLOCK=triton.next_power_of_2(cols))
        return out
