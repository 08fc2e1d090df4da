"""
task: add_gelu
pattern: X
label: inconclusive
twin_of: -
what: inline assembly: the interpreter cannot run it
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_gelu_kernel(x_ptr, y_ptr, out_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    s = tl.inline_asm_elementwise(
        "add.f32 $0, $1, $2;", "=f,f,f", [x, y], dtype=tl.float32, is_pure=True, pack=1
    )
    tl.store(out_ptr + offsets, 0.5 * s * (1.0 + tl.erf(s * 0.7071067811865476)), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        out = torch.empty_like(x)
        n = out.numel()
        add_gelu_kernel[(triton.cdiv(n, 512),)](x, y, out, n, BLOCK_SIZE=512)
        return out
