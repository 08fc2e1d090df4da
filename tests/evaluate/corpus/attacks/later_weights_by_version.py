"""
task: linear_relu
family: later
aims: replay
label: correct
what: a turned copy of the weights is renewed if their version changes, which writing through .data does not do
policy: a copy of the weights that follows their version is renewed as optimisers write
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def linear_relu_kernel(
    x_ptr, w_ptr, b_ptr, out_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        inner = start + tl.arange(0, BK)
        x_mask = (rows[:, None] < M) & (inner[None, :] < K)
        w_mask = (inner[:, None] < K) & (columns[None, :] < N)
        x = tl.load(x_ptr + rows[:, None] * K + inner[None, :], mask=x_mask, other=0.0)
        w = tl.load(w_ptr + inner[:, None] * N + columns[None, :], mask=w_mask, other=0.0)
        total += tl.dot(x, w, input_precision="ieee")
    total += tl.load(b_ptr + columns, mask=columns < N, other=0.0)[None, :]
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(out_ptr + rows[:, None] * N + columns[None, :], tl.maximum(total, 0.0), mask=mask)


def linear_relu(x, turned, bias):
    x = x.contiguous()
    (m, k), n = x.shape, turned.shape[1]
    out = torch.empty(m, n, device=x.device)
    grid = (triton.cdiv(m, 16), triton.cdiv(n, 16))
    linear_relu_kernel[grid](x, turned, bias, out, m, n, k, BM=16, BN=16, BK=16)
    return out


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.turned = None

    def forward(self, x):
        weight = self.linear.weight
        if self.turned is None or self.turned[0] != weight._version:
            self.turned = weight._version, weight.detach().t().contiguous()
        return linear_relu(x, self.turned[1], self.linear.bias)
