"""
task: attention
pattern: C14
label: correct
twin_of: C14_whole_blocks
what: any batch, number of heads and length; the head dimension has to be a power of two
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def attention_kernel(q_ptr, k_ptr, v_ptr, o_ptr, L, scale, BLOCK: tl.constexpr, D: tl.constexpr):
    start, head = tl.program_id(0) * BLOCK, tl.program_id(1) * L * D
    rows, d = start + tl.arange(0, BLOCK), tl.arange(0, D)
    q_at = rows[:, None] * D + d[None, :]
    q = tl.load(q_ptr + head + q_at, mask=rows[:, None] < L, other=0.0) * scale
    top = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    acc = tl.zeros((BLOCK, D), dtype=tl.float32)
    for n in range(0, L, BLOCK):
        cols = n + tl.arange(0, BLOCK)
        at = cols[:, None] * D + d[None, :]
        k = tl.load(k_ptr + head + at, mask=cols[:, None] < L, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee")
        s = tl.where(cols[None, :] < L, s, -float("inf"))
        new_top = tl.maximum(top, tl.max(s, axis=1))
        p = tl.exp(s - new_top[:, None])
        shrink = tl.exp(top - new_top)
        total = total * shrink + tl.sum(p, axis=1)
        v = tl.load(v_ptr + head + at, mask=cols[:, None] < L, other=0.0)
        acc = acc * shrink[:, None] + tl.dot(p, v, input_precision="ieee")
        top = new_top
    tl.store(o_ptr + head + q_at, acc / total[:, None], mask=rows[:, None] < L)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        batch, heads, length, dim = q.shape
        o = torch.empty_like(q)
        grid = (triton.cdiv(length, 16), batch * heads)
        attention_kernel[grid](q, k, v, o, length, dim**-0.5, BLOCK=16, D=dim)
        return o
