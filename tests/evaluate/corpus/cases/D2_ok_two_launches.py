"""
task: GatedUnit
pattern: D2
label: correct
twin_of: D2_background_thread, D2_executor
what: two independent launches one after the other, then a third that joins them
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def linear_kernel(
    x_ptr, w_ptr, b_ptr, y_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    rm = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        rk = k + tl.arange(0, BLOCK_K)
        x = tl.load(
            x_ptr + rm[:, None] * K + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < K), other=0.0
        )
        w = tl.load(
            w_ptr + rn[None, :] * K + rk[:, None], mask=(rn[None, :] < N) & (rk[:, None] < K), other=0.0
        )
        acc = tl.dot(x, w, acc, input_precision="ieee")
    if b_ptr is not None:
        acc += tl.load(b_ptr + rn, mask=rn < N, other=0.0)[None, :]
    tl.store(y_ptr + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


@triton.jit
def gate_kernel(v_ptr, g_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    v = tl.load(v_ptr + offs, mask=mask)
    g = tl.load(g_ptr + offs, mask=mask)
    tl.store(y_ptr + offs, v * tl.sigmoid(g), mask=mask)


def linear(x, layer):
    M, K = x.shape
    N = layer.weight.shape[0]
    y = torch.empty((M, N), device=x.device, dtype=x.dtype)
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 16))
    linear_kernel[grid](x, layer.weight, layer.bias, y, M, N, K, BLOCK_M=16, BLOCK_N=16, BLOCK_K=16)
    return y


class GatedUnitNew(nn.Module):
    def __init__(self, features, bias=True):
        super().__init__()
        self.value = nn.Linear(features, features, bias=bias)
        self.gate = nn.Linear(features, features, bias=bias)

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1]).contiguous()
        value = linear(flat, self.value)
        gate = linear(flat, self.gate)
        y = torch.empty_like(x)
        gate_kernel[(triton.cdiv(y.numel(), 256),)](value, gate, y, y.numel(), BLOCK=256)
        return y
