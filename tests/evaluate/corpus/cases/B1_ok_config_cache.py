"""
task: softmax
pattern: B1
label: correct
twin_of: B1_memo_by_id, B1_weak_keys, B1_lru_cache
what: lru_cache over a helper that picks a launch configuration
"""

import functools

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * stride_x + cols, mask=mask, other=-float("inf"))
    x = x - tl.max(x, axis=0)
    numerator = tl.exp(x)
    denominator = tl.sum(numerator, axis=0)
    tl.store(y_ptr + row * stride_y + cols, numerator / denominator, mask=mask)


@functools.lru_cache(maxsize=None)
def launch_config(n_cols):
    block = triton.next_power_of_2(n_cols)
    return block, 4 if block <= 1024 else 8


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, cols = x.shape
        block, num_warps = launch_config(cols)
        softmax_kernel[(rows,)](x, y, x.stride(0), y.stride(0), cols, BLOCK=block, num_warps=num_warps)
        return y
