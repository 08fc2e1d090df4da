"""
task: depthwise_conv1d
pattern: B12
label: correct
twin_of: B12_stale_weight
what: the weight is laid out anew in every call
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def depthwise_conv_kernel(
    x_ptr, w_ptr, b_ptr, y_ptr, C, L, K: tl.constexpr, PAD: tl.constexpr, BLOCK: tl.constexpr
):
    bc = tl.program_id(0)
    c = bc % C
    out_pos = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32)
    for k in range(K):
        p = out_pos + k - PAD
        v = tl.load(x_ptr + bc * L + p, mask=(p >= 0) & (p < L), other=0.0)
        acc += v * tl.load(w_ptr + k * C + c)
    acc += tl.load(b_ptr + c)
    tl.store(y_ptr + bc * L + out_pos, acc, mask=out_pos < L)


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size, padding=kernel_size // 2, groups=channels)

    def forward(self, x):
        x = x.contiguous()
        B, C, L = x.shape
        K = self.conv.kernel_size[0]
        w = self.conv.weight.view(C, K).t().contiguous().float()
        y = torch.empty_like(x)
        depthwise_conv_kernel[(B * C, triton.cdiv(L, 128))](
            x, w, self.conv.bias, y, C, L, K=K, PAD=K // 2, BLOCK=128
        )
        return y
