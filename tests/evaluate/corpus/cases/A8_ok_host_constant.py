"""
task: attention
pattern: A8
label: correct
twin_of: A8_numpy, A8_numpy_then_copy, A8_python_lists
what: NumPy and math for one constant on the host; attention in one kernel
"""

import math

import numpy as np

import torch
import torch.nn as nn
import triton
import triton.language as tl

LOG2E = float(np.log2(np.e))


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, seq, qk_scale, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr
):
    head = tl.program_id(1)
    rm = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rd = tl.arange(0, D)
    base = head * seq * D
    q = tl.load(q_ptr + base + rm[:, None] * D + rd[None, :], mask=rm[:, None] < seq, other=0.0)
    m_i = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    l_i = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, D), dtype=tl.float32)
    for start in range(0, seq, BLOCK_N):
        rn = start + tl.arange(0, BLOCK_N)
        k = tl.load(k_ptr + base + rn[None, :] * D + rd[:, None], mask=rn[None, :] < seq, other=0.0)
        v = tl.load(v_ptr + base + rn[:, None] * D + rd[None, :], mask=rn[:, None] < seq, other=0.0)
        s = tl.dot(q, k, input_precision="ieee") * qk_scale
        s = tl.where(rn[None, :] < seq, s, -float("inf"))
        m_new = tl.maximum(m_i, tl.max(s, axis=1))
        p = tl.exp2(s - m_new[:, None])
        alpha = tl.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, axis=1)
        acc = acc * alpha[:, None] + tl.dot(p, v, input_precision="ieee")
        m_i = m_new
    tl.store(o_ptr + base + rm[:, None] * D + rd[None, :], acc / l_i[:, None], mask=rm[:, None] < seq)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        B, H, S, D = q.shape
        o = torch.empty_like(q)
        grid = (triton.cdiv(S, 32), B * H)
        attention_kernel[grid](q, k, v, o, S, LOG2E / math.sqrt(D), BLOCK_M=32, BLOCK_N=32, D=D)
        return o
