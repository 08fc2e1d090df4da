"""
task: mse
pattern: A12
label: correct
twin_of: A12_sys_modules, A12_caller_frames
what: a self-test under __main__ that compares with torch
"""

import sys

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def squared_error_kernel(p_ptr, t_ptr, partial_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    d = tl.load(p_ptr + offs, mask=mask, other=0.0) - tl.load(t_ptr + offs, mask=mask, other=0.0)
    tl.store(partial_ptr + tl.program_id(0), tl.sum(d * d, axis=0))


@triton.jit
def finish_kernel(partial_ptr, out_ptr, parts, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    partial = tl.load(partial_ptr + offs, mask=offs < parts, other=0.0)
    tl.store(out_ptr, tl.sum(partial, axis=0) / n)


class ModelNew(nn.Module):
    def forward(self, prediction, target):
        prediction, target = prediction.contiguous(), target.contiguous()
        n = prediction.numel()
        parts = triton.cdiv(n, 512)
        partial = torch.empty(parts, device=prediction.device, dtype=torch.float32)
        out = torch.empty((), device=prediction.device, dtype=prediction.dtype)
        squared_error_kernel[(parts,)](prediction, target, partial, n, BLOCK=512)
        finish_kernel[(1,)](partial, out, parts, n, BLOCK=triton.next_power_of_2(parts))
        return out


if __name__ == "__main__":
    a, b = torch.randn(50, 70, device="cuda"), torch.randn(50, 70, device="cuda")
    same = torch.allclose(ModelNew()(a, b), torch.mean((a - b) ** 2))
    sys.exit(0 if same else 1)
