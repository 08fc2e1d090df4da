"""
task: argmax
pattern: B7
label: correct
twin_of: B7_mutable_default, B7_closure, B7_function_attribute, B7_context_var, B7_generator, B7_partial, B7_tensor_attribute
what: partial and closure hold launch parameters only
"""

import functools

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def argmax_kernel(x_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=-float("inf"))
    tl.store(out_ptr + row, tl.argmax(x, axis=0).to(tl.int64))


def launch(x, block):
    x = x.contiguous()
    rows, cols = x.shape
    out = torch.empty(rows, device=x.device, dtype=torch.int64)
    argmax_kernel[(rows,)](x, out, cols, BLOCK=block)
    return out


def make_launcher(blocks={}):
    def run(x):
        cols = x.shape[1]
        if cols not in blocks:
            blocks[cols] = functools.partial(launch, block=triton.next_power_of_2(cols))
        return blocks[cols](x)

    return run


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim
        self.run = make_launcher()

    def forward(self, x):
        return self.run(x)
