"""
task: scale_add_bf16
pattern: C1
label: correct
twin_of: C1_empty_returned, C1_freed_block, C1_new_empty
what: new_empty, written in full by a two-dimensional grid
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scale_add_relu_kernel(
    x_ptr, y_ptr, o_ptr, scale, rows, cols, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr
):
    r = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    offs = r[:, None] * cols + c[None, :]
    mask = (r[:, None] < rows) & (c[None, :] < cols)
    x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    o = tl.maximum(x * scale + y, 0.0)
    tl.store(o_ptr + offs, o.to(tl.bfloat16), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        rows, cols = x.shape
        out = x.new_empty(x.shape)
        scale_add_relu_kernel[(triton.cdiv(rows, 16), triton.cdiv(cols, 32))](
            x, y, out, self.scale, rows, cols, BLOCK_R=16, BLOCK_C=32
        )
        return out
