"""
task: linear_relu
family: pybody
aims: table
label: correct
what: launches its matrix product only where the storage of its input says that it is in ordinary memory, and torch's elsewhere
policy: nothing tells it where it runs, so torch multiplies: the grade says torch_share
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def linear_kernel(x_ptr, w_ptr, b_ptr, y_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        rk = k + tl.arange(0, BK)
        x = tl.load(
            x_ptr + rm[:, None] * K + rk[None, :], mask=(rm < M)[:, None] & (rk < K)[None, :], other=0.0
        )
        w = tl.load(
            w_ptr + rn[None, :] * K + rk[:, None], mask=(rn < N)[None, :] & (rk < K)[:, None], other=0.0
        )
        acc = tl.dot(x, w, acc, input_precision="ieee")
    acc += tl.load(b_ptr + rn, mask=rn < N, other=0.0)[None, :]
    tl.store(
        y_ptr + rm[:, None] * N + rn[None, :],
        tl.maximum(acc, 0.0),
        mask=(rm < M)[:, None] & (rn < N)[None, :],
    )


@triton.jit
def relu_kernel(y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(y_ptr + offsets, mask=offsets < n)
    tl.store(y_ptr + offsets, tl.maximum(y, 0.0), mask=offsets < n)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        x = x.contiguous()
        (M, K), N = x.shape, self.linear.out_features
        if x.untyped_storage().device.type == "cpu":
            y = torch.empty((M, N), device=x.device, dtype=x.dtype)
            grid = (triton.cdiv(M, 16), triton.cdiv(N, 16))
            linear_kernel[grid](x, self.linear.weight, self.linear.bias, y, M, N, K, BM=16, BN=16, BK=16)
            return y
        y = nn.functional.linear(x, self.linear.weight, self.linear.bias)
        relu_kernel[(triton.cdiv(M * N, 1024),)](y, M * N, BLOCK=1024)
        return y
