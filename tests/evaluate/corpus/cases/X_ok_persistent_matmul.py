"""
task: matmul_fp16
pattern: X
label: correct
twin_of: -
what: a persistent kernel: a few programs walk over all tiles; the result is cast once
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def persistent_matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    NUM_SMS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    tiles_n = tl.cdiv(N, BLOCK_N)
    tiles = tl.cdiv(M, BLOCK_M) * tiles_n
    for tile in range(tl.program_id(0), tiles, NUM_SMS):
        rm = (tile // tiles_n) * BLOCK_M + tl.arange(0, BLOCK_M)
        rn = (tile % tiles_n) * BLOCK_N + tl.arange(0, BLOCK_N)
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            rk = k + tl.arange(0, BLOCK_K)
            a = tl.load(
                a_ptr + rm[:, None] * K + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < K), other=0.0
            )
            b = tl.load(
                b_ptr + rk[:, None] * N + rn[None, :], mask=(rk[:, None] < K) & (rn[None, :] < N), other=0.0
            )
            acc = tl.dot(a, b, acc)
        tl.store(
            c_ptr + rm[:, None] * N + rn[None, :],
            acc.to(c_ptr.dtype.element_ty),
            mask=(rm[:, None] < M) & (rn[None, :] < N),
        )


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        M, K = a.shape
        N = b.shape[1]
        c = torch.empty((M, N), device=a.device, dtype=a.dtype)
        num_sms = torch.cuda.get_device_properties(a.device).multi_processor_count
        tiles = triton.cdiv(M, 16) * triton.cdiv(N, 16)
        programs = min(num_sms, tiles)
        persistent_matmul_kernel[(programs,)](
            a, b, c, M, N, K, NUM_SMS=programs, BLOCK_M=16, BLOCK_N=16, BLOCK_K=32
        )
        return c
