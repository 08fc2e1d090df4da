"""
task: masked_mean
pattern: C13
label: correct
twin_of: C13_identity_order, C13_full_mask
what: reads the mask
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
    count = tl.maximum(tl.sum(kept, axis=0), 1.0)
    tl.store(out_ptr + row, tl.sum(x * kept, axis=0) / count)


class ModelNew(nn.Module):
    def forward(self, x, mask):
        x = x.contiguous()
        mask = mask.contiguous()
        rows, cols = x.shape
        out = torch.empty(rows, device=x.device, dtype=x.dtype)
        masked_mean_kernel[(rows,)](x, mask, out, cols, BLOCK=triton.next_power_of_2(cols))
        return out
