"""
task: mse
pattern: B3
label: correct
twin_of: B3_call_count, B3_first_call_by_shape, B3_one_in_ten
what: a workspace kept by shape and written in full on every call; calls are counted for statistics only
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def partial_kernel(p_ptr, t_ptr, partial_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    p = tl.load(p_ptr + offs, mask=mask, other=0.0)
    t = tl.load(t_ptr + offs, mask=mask, other=0.0)
    tl.store(partial_ptr + pid, tl.sum((p - t) * (p - t), axis=0) / n)


@triton.jit
def sum_kernel(partial_ptr, out_ptr, parts, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(out_ptr, tl.sum(tl.load(partial_ptr + offs, mask=offs < parts, other=0.0), axis=0))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.workspaces = {}
        self.calls = 0

    def forward(self, prediction, target):
        self.calls += 1
        prediction, target = prediction.contiguous(), target.contiguous()
        n = prediction.numel()
        parts = triton.cdiv(n, 512)
        key = (parts, prediction.device)
        if key not in self.workspaces:
            self.workspaces[key] = torch.empty(parts, device=prediction.device, dtype=torch.float32)
        workspace = self.workspaces[key]
        out = torch.empty((), device=prediction.device, dtype=torch.float32)
        partial_kernel[(parts,)](prediction, target, workspace, n, BLOCK=512)
        sum_kernel[(1,)](workspace, out, parts, BLOCK=triton.next_power_of_2(parts))
        return out
