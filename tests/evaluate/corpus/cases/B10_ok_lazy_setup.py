"""
task: rmsnorm
pattern: B10
label: correct
twin_of: B10_warm_up
what: the first call sets up a block size and the number of multiprocessors, nothing else
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def persistent_rmsnorm_kernel(
    x_ptr, w_ptr, y_ptr, rows, cols, eps, NUM_PROGRAMS: tl.constexpr, BLOCK: tl.constexpr
):
    c = tl.arange(0, BLOCK)
    mask = c < cols
    w = tl.load(w_ptr + c, mask=mask, other=0.0)
    for row in range(tl.program_id(0), rows, NUM_PROGRAMS):
        x = tl.load(x_ptr + row * cols + c, mask=mask, other=0.0)
        inv = 1.0 / tl.sqrt(tl.sum(x * x, axis=0) / cols + eps)
        tl.store(y_ptr + row * cols + c, x * inv * w, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.rand(dim) + 0.5)
        self.ready = False

    def setup(self, x):
        properties = torch.cuda.get_device_properties(x.device)
        self.num_sms = properties.multi_processor_count
        self.block = triton.next_power_of_2(x.shape[-1])
        self.ready = True

    def forward(self, x):
        if not self.ready:
            self.setup(x)
        x = x.contiguous()
        y = torch.empty_like(x)
        cols = x.shape[-1]
        rows = x.numel() // cols
        programs = min(self.num_sms, rows, 8)
        persistent_rmsnorm_kernel[(programs,)](
            x, self.weight, y, rows, cols, self.eps, NUM_PROGRAMS=programs, BLOCK=self.block
        )
        return y
