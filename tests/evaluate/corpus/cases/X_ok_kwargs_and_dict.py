"""
task: depthwise_conv1d
pattern: X
label: correct
twin_of: -
what: kernels picked from a dict, options passed by **kwargs
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def conv_kernel(x_ptr, w_ptr, b_ptr, y_ptr, C, L, K: tl.constexpr, BLOCK: tl.constexpr):
    bc = tl.program_id(0)
    c = bc % C
    pos = tl.arange(0, BLOCK)
    acc = tl.full((BLOCK,), 0.0, dtype=tl.float32)
    for k in tl.static_range(0, K):
        p = pos + (k - K // 2)
        acc += tl.load(x_ptr + bc * L + p, mask=(p >= 0) & (p < L), other=0.0) * tl.load(w_ptr + c * K + k)
    tl.store(y_ptr + bc * L + pos, acc + tl.load(b_ptr + c), mask=pos < L)


KERNELS = {"depthwise": conv_kernel}


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size, padding=kernel_size // 2, groups=channels)

    def forward(self, x):
        x = x.contiguous()
        B, C, L = x.shape
        y = torch.empty_like(x)
        options = dict(K=self.conv.kernel_size[0], BLOCK=triton.next_power_of_2(L), num_warps=1)
        kernel = KERNELS["depthwise" if self.conv.groups == C else "dense"]
        kernel[(B * C,)](x, self.conv.weight, self.conv.bias, y, C, L, **options)
        return y
