"""
task: rmsnorm
pattern: X
label: correct
twin_of: -
what: keeps strides of the input as they come, with do_not_specialize and default arguments
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["eps"])
def rmsnorm_strided_kernel(x_ptr, w_ptr, y_ptr, sx0, sx1, sy0, n_cols, eps, BLOCK: tl.constexpr = 128):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * sx0 + cols * sx1, mask=mask, other=0.0)
    w = tl.load(w_ptr + cols, mask=mask, other=0.0)
    mean_square = tl.sum(x * x, axis=0) / n_cols
    tl.store(y_ptr + row * sy0 + cols, x / tl.sqrt(mean_square + eps) * w, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.rand(dim) + 0.5)

    def forward(self, x):
        rows, cols = x.shape
        y = torch.empty((rows, cols), device=x.device, dtype=x.dtype)
        rmsnorm_strided_kernel[(rows,)](
            x,
            self.weight,
            y,
            x.stride(0),
            x.stride(1),
            y.stride(0),
            cols,
            self.eps,
            BLOCK=max(128, triton.next_power_of_2(cols)),
        )
        return y
