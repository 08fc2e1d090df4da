"""
task: row_energy
family: partial
aims: replay
label: incorrect
what: a quarter of the rows, those with the least gain, is not read: their results are zero
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def energy_kernel(x_ptr, gain_ptr, out_ptr, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    every = tl.arange(0, ROWS)
    loudest = tl.max(tl.abs(tl.load(gain_ptr + every, mask=every < rows, other=0.0)), axis=0)
    gain = tl.load(gain_ptr + row)
    offsets = tl.arange(0, BLOCK)
    mask = (offsets < columns) & (tl.abs(gain) > 1e-3 * loudest)
    x = gain * tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + row, tl.sum(x * x, axis=0) / columns)


class ModelNew(nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.gain = nn.Parameter(torch.logspace(0, -4, rows))

    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        out = torch.empty(rows, device=x.device)
        blocks = triton.next_power_of_2(rows), triton.next_power_of_2(columns)
        energy_kernel[(rows,)](x, self.gain, out, rows, columns, ROWS=blocks[0], BLOCK=blocks[1])
        return out
