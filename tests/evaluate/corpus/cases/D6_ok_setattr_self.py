"""
task: rmsnorm
pattern: D6
label: correct
twin_of: D6_setattr, D6_module_dict, D6_code_object
what: setattr on itself, from a dict of its options
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


class ModelNew(nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.rand(dim) + 0.5)
        for name, value in {"num_warps": 2, "num_stages": 1}.items():
            setattr(self, name, value)

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, cols = x.shape
        rmsnorm_kernel[(rows,)](
            x,
            self.weight,
            y,
            cols,
            self.eps,
            BLOCK=triton.next_power_of_2(cols),
            num_warps=self.num_warps,
            num_stages=self.num_stages,
        )
        return y
