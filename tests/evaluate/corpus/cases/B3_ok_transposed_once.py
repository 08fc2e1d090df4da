"""
task: linear_relu
pattern: B3
label: correct
twin_of: B3_after_many_calls
what: a kernel transposes the weight in the first call and after each change; later calls use what it made
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def transpose_kernel(w_ptr, t_ptr, N, K, BLOCK: tl.constexpr):
    n = tl.program_id(0)
    k = tl.arange(0, BLOCK)
    tl.store(t_ptr + k * N + n, tl.load(w_ptr + n * K + k, mask=k < K, other=0.0), mask=k < K)


@triton.jit
def linear_relu_kernel(x_ptr, t_ptr, b_ptr, y_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, 16):
        kk = k + tl.arange(0, 16)
        x = tl.load(
            x_ptr + m[:, None] * K + kk[None, :], mask=(m[:, None] < M) & (kk[None, :] < K), other=0.0
        )
        w = tl.load(
            t_ptr + kk[:, None] * N + n[None, :], mask=(kk[:, None] < K) & (n[None, :] < N), other=0.0
        )
        acc += tl.dot(x, w, input_precision="ieee")
    acc += tl.load(b_ptr + n, mask=n < N, other=0.0)[None, :]
    tl.store(
        y_ptr + m[:, None] * N + n[None, :],
        tl.maximum(acc, 0.0),
        mask=(m[:, None] < M) & (n[None, :] < N),
    )


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.version = None
        self.transposed = None

    def forward(self, x):
        x, w = x.contiguous(), self.linear.weight
        (M, K), N = x.shape, w.shape[0]
        if self.version != w._version:
            self.transposed = torch.empty((K, N), device=w.device, dtype=w.dtype)
            transpose_kernel[(N,)](w, self.transposed, N, K, BLOCK=triton.next_power_of_2(K))
            self.version = w._version
        y = torch.empty((M, N), device=x.device, dtype=x.dtype)
        grid = (triton.cdiv(M, 16), triton.cdiv(N, 16))
        linear_relu_kernel[grid](x, self.transposed, self.linear.bias, y, M, N, K, BLOCK_M=16, BLOCK_N=16)
        return y
