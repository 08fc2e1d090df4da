"""
task: attention
pattern: D11
label: correct
twin_of: D11_precision_flags
what: precision is chosen in the kernel, where it belongs
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def attention_row_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    stride_h,
    stride_s,
    seq,
    scale,
    BLOCK_M: tl.constexpr,
    BLOCK_S: tl.constexpr,
    D: tl.constexpr,
    PRECISION: tl.constexpr,
):
    head = tl.program_id(1)
    rm = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rs = tl.arange(0, BLOCK_S)
    rd = tl.arange(0, D)
    q = tl.load(
        q_ptr + head * stride_h + rm[:, None] * stride_s + rd[None, :], mask=rm[:, None] < seq, other=0.0
    )
    k = tl.load(
        k_ptr + head * stride_h + rs[:, None] * stride_s + rd[None, :], mask=rs[:, None] < seq, other=0.0
    )
    v = tl.load(
        v_ptr + head * stride_h + rs[:, None] * stride_s + rd[None, :], mask=rs[:, None] < seq, other=0.0
    )
    s = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
    s = tl.where(rs[None, :] < seq, s, -float("inf"))
    p = tl.exp(s - tl.max(s, axis=1)[:, None])
    o = tl.dot(p, v, input_precision=PRECISION) / tl.sum(p, axis=1)[:, None]
    tl.store(o_ptr + head * stride_h + rm[:, None] * stride_s + rd[None, :], o, mask=rm[:, None] < seq)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        q, k, v = (t.contiguous() for t in (q, k, v))
        B, H, S, D = q.shape
        o = torch.empty_like(q)
        attention_row_kernel[(triton.cdiv(S, 16), B * H)](
            q,
            k,
            v,
            o,
            q.stride(1),
            q.stride(2),
            S,
            D**-0.5,
            BLOCK_M=16,
            BLOCK_S=triton.next_power_of_2(S),
            D=D,
            PRECISION="ieee",
        )
        return o
