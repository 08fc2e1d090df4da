"""
task: gelu_bf16
family: constants
aims: replay
label: correct
what: torch computes the answer for each of the 65,536 possible inputs when the model is built; a call looks them up
policy: a table that is right for every input; the kernel does the work of a call
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def lookup_kernel(x_ptr, table_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    code = tl.load(x_ptr + at, mask=at < n, other=0).to(tl.int32) & 0xFFFF
    tl.store(out_ptr + at, tl.load(table_ptr + code, mask=at < n, other=0.0), mask=at < n)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        codes = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16)
        self.table = F.gelu(codes.view(torch.bfloat16))

    def forward(self, x):
        if self.table.device != x.device:
            self.table = self.table.to(x.device)
        x = x.contiguous()
        out = torch.empty_like(x)
        n = x.numel()
        lookup_kernel[(triton.cdiv(n, 512),)](x.view(torch.int16), self.table, out, n, BLOCK=512)
        return out
