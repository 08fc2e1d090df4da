"""
task: matmul
pattern: X
label: correct
twin_of: -
what: split-K: partial products in a workspace, then their sum
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def split_k_kernel(
    a_ptr,
    b_ptr,
    work_ptr,
    M,
    N,
    K,
    K_PER_SPLIT,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    rm = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    split = tl.program_id(2)
    first = split * K_PER_SPLIT
    last = min(first + K_PER_SPLIT, K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(first, last, BLOCK_K):
        rk = k + tl.arange(0, BLOCK_K)
        a = tl.load(
            a_ptr + rm[:, None] * K + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < last), other=0.0
        )
        b = tl.load(
            b_ptr + rk[:, None] * N + rn[None, :], mask=(rk[:, None] < last) & (rn[None, :] < N), other=0.0
        )
        acc += tl.dot(a, b, input_precision="ieee")
    tl.store(
        work_ptr + split * M * N + rm[:, None] * N + rn[None, :],
        acc,
        mask=(rm[:, None] < M) & (rn[None, :] < N),
    )


@triton.jit
def sum_splits_kernel(work_ptr, c_ptr, n, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for s in tl.static_range(SPLITS):
        acc += tl.load(work_ptr + s * n + offs, mask=mask, other=0.0)
    tl.store(c_ptr + offs, acc, mask=mask)


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        M, K = a.shape
        N = b.shape[1]
        splits = 2
        work = torch.empty((splits, M, N), device=a.device, dtype=torch.float32)
        c = torch.empty((M, N), device=a.device, dtype=a.dtype)
        grid = (triton.cdiv(M, 32), triton.cdiv(N, 32), splits)
        split_k_kernel[grid](a, b, work, M, N, K, triton.cdiv(K, splits), BLOCK_M=32, BLOCK_N=32, BLOCK_K=16)
        sum_splits_kernel[(triton.cdiv(M * N, 1024),)](work, c, M * N, SPLITS=splits, BLOCK=1024)
        return c
