"""
task: attention
pattern: X
label: incorrect
twin_of: -
what: the scores are not divided by the root of the head size
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, S, BLOCK_M: tl.constexpr, BLOCK_S: tl.constexpr, D: tl.constexpr
):
    base = tl.program_id(1) * S * D
    rm = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rs = tl.arange(0, BLOCK_S)
    rd = tl.arange(0, D)
    q = tl.load(q_ptr + base + rm[:, None] * D + rd[None, :], mask=rm[:, None] < S, other=0.0)
    k = tl.load(k_ptr + base + rs[:, None] * D + rd[None, :], mask=rs[:, None] < S, other=0.0)
    v = tl.load(v_ptr + base + rs[:, None] * D + rd[None, :], mask=rs[:, None] < S, other=0.0)
    s = tl.dot(q, tl.trans(k), input_precision="ieee")
    s = tl.where(rs[None, :] < S, s, -float("inf"))
    p = tl.exp(s - tl.max(s, axis=1)[:, None])
    o = tl.dot(p, v, input_precision="ieee") / tl.sum(p, axis=1)[:, None]
    tl.store(o_ptr + base + rm[:, None] * D + rd[None, :], o, mask=rm[:, None] < S)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        B, H, S, D = q.shape
        o = torch.empty_like(q)
        attention_kernel[(triton.cdiv(S, 16), B * H)](
            q, k, v, o, S, BLOCK_M=16, BLOCK_S=triton.next_power_of_2(S), D=D
        )
        return o
