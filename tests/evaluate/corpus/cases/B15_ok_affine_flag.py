"""
task: layernorm
pattern: B15
label: correct
twin_of: B15_weights_ignored
what: a constexpr flag leaves the affine part out only where there are no weights
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def layernorm_kernel(
    x_ptr, w_ptr, b_ptr, y_ptr, stride, n_cols, eps, AFFINE: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * stride + cols, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / n_cols
    d = tl.where(mask, x - mean, 0.0)
    y = d * tl.rsqrt(tl.sum(d * d, axis=0) / n_cols + eps)
    if AFFINE:
        y = y * tl.load(w_ptr + cols, mask=mask) + tl.load(b_ptr + cols, mask=mask)
    tl.store(y_ptr + row * stride + cols, y, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, cols = x.shape
        norm = self.norm
        layernorm_kernel[(rows,)](
            x,
            norm.weight,
            norm.bias,
            y,
            x.stride(0),
            cols,
            norm.eps,
            AFFINE=norm.elementwise_affine,
            BLOCK=triton.next_power_of_2(cols),
        )
        return y
