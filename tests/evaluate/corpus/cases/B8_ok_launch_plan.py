"""
task: depthwise_conv1d
pattern: B8
label: correct
twin_of: B8_replay_old_pointers, B8_cuda_graph
what: a launch plan is kept by shape; pointers are bound anew in every call
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def depthwise_kernel(x_ptr, w_ptr, b_ptr, y_ptr, channels, length, KERNEL: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = row % channels
    cols = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), dtype=tl.float32) + tl.load(b_ptr + c)
    for k in tl.static_range(KERNEL):
        pos = cols + k - KERNEL // 2
        mask = (pos >= 0) & (pos < length) & (cols < length)
        acc += tl.load(x_ptr + row * length + pos, mask=mask, other=0.0) * tl.load(w_ptr + c * KERNEL + k)
    tl.store(y_ptr + row * length + cols, acc, mask=cols < length)


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size, padding=kernel_size // 2, groups=channels)
        self.kernel_size = kernel_size
        self.plans = {}

    def forward(self, x):
        x = x.contiguous()
        B, C, L = x.shape
        plan = self.plans.get((B, C, L))
        if plan is None:
            block = triton.next_power_of_2(L)
            plan = lambda x, w, b, y: depthwise_kernel[(B * C,)](
                x, w, b, y, C, L, KERNEL=self.kernel_size, BLOCK=block
            )
            self.plans[(B, C, L)] = plan
        y = torch.empty_like(x)
        plan(x, self.conv.weight, self.conv.bias, y)
        return y
