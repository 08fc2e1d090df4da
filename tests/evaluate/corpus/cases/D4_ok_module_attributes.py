"""
task: Swish
pattern: D4
label: correct
twin_of: D4_instance_override
what: attributes are set on the module, none on a tensor
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def swish_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    x = tl.load(x_ptr + i, mask=m)
    tl.store(y_ptr + i, x * tl.sigmoid(x), mask=m)


class SwishNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = 128
        self.run = self._run

    def _run(self, x):
        y = torch.empty_like(x)
        n = x.numel()
        swish_kernel[(triton.cdiv(n, self.block),)](x, y, n, BLOCK=self.block)
        return y

    def forward(self, x):
        return self.run(x.contiguous())
