"""
task: softmax
pattern: E5
label: correct
twin_of: E5_exit_in_forward, E5_exit_at_import, E5_system_exit, E5_atexit_writer, E5_kill_parent
what: contextlib with an exit of its own, and finally
"""

import contextlib

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


def triton_softmax(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    rows, cols = x.shape
    softmax_kernel[(rows,)](x, y, x.stride(0), y.stride(0), cols, BLOCK=triton.next_power_of_2(cols))
    return y


@contextlib.contextmanager
def on_device(x):
    with torch.cuda.device(x.device):
        try:
            yield
        finally:
            pass


class ModelNew(nn.Module):
    def forward(self, x):
        with on_device(x):
            return triton_softmax(x)
