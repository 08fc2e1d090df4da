"""
task: softmax
pattern: A16
label: correct
twin_of: A16_modes_disabled, A16_thread
what: modes and a lock around the launch, as in code that is also called under autocast and from data loaders
"""

import threading

import torch
import torch.nn as nn
import triton
import triton.language as tl

blocks_lock = threading.Lock()
blocks: dict[int, int] = {}


@triton.jit
def softmax_kernel(x_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=-float("inf"))
    x = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * n_cols + cols, x / tl.sum(x, axis=0), mask=mask)


def block_for(n_cols):
    with blocks_lock:
        return blocks.setdefault(n_cols, triton.next_power_of_2(n_cols))


class ModelNew(nn.Module):
    @torch.no_grad()
    def forward(self, x):
        with torch.autocast("cuda", enabled=False):
            x = x.contiguous()
            out = torch.empty_like(x)
            softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=block_for(x.shape[1]))
        return out
