"""
task: rmsnorm
pattern: D3
label: correct
twin_of: D3_lazy_subclass, D3_lazy_dispatch
what: parameters are a subclass of Tensor, as ever; outputs are plain
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rmsnorm_kernel(x_ptr, w_ptr, y_ptr, n_cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=0.0)
    w = tl.load(w_ptr + cols, mask=mask, other=0.0)
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / n_cols + eps)
    tl.store(y_ptr + row * n_cols + cols, x * scale * w, mask=mask)


def rms_norm(x, weight, eps):
    x = x.contiguous()
    out = torch.empty_like(x)
    n_cols = x.shape[-1]
    rmsnorm_kernel[(x.numel() // n_cols,)](x, weight, out, n_cols, eps, BLOCK=triton.next_power_of_2(n_cols))
    return out


class ModelNew(nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.rand(dim) + 0.5)

    def forward(self, x):
        weight = self.weight.data if isinstance(self.weight, nn.Parameter) else self.weight
        return rms_norm(x, weight, self.eps)
