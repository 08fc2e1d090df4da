"""
task: softmax
pattern: A16
label: correct
twin_of: A16_modes_disabled
what: a decorator makes all tensors contiguous, and asks for the function's signature
"""

import functools
import inspect

import torch
import torch.nn as nn
import triton
import triton.language as tl


def contiguous(function):
    names = list(inspect.signature(function).parameters)

    @functools.wraps(function)
    def wrapper(*args):
        assert len(args) == len(names)
        return function(*(arg.contiguous() if isinstance(arg, torch.Tensor) else arg for arg in args))

    return wrapper


@triton.jit
def softmax_kernel(x_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=-float("inf"))
    x = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * n_cols + cols, x / tl.sum(x, axis=0), mask=cols < n_cols)


@contiguous
def softmax(x):
    out = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return out


class ModelNew(nn.Module):
    def forward(self, x):
        return softmax(x)
