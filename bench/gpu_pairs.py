"""Candidates for timing an evaluator on a GPU: four tasks at real sizes, each with Triton kernels that differ a little."""

from __future__ import annotations

from collections.abc import Iterator

from kernelmill.evaluate.options import Pair

_HEAD = """
import torch
import torch.nn as nn
import triton
import triton.language as tl

"""
ADD = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x, y):
        return x + y

def get_inputs():
    return [torch.randn(4096, 4096), torch.randn(4096, 4096)]

def get_init_inputs():
    return []
"""
ADD_KERNEL = """
@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)

class ModelNew(nn.Module):
    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        out = torch.empty_like(x)
        add_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, out, x.numel(), BLOCK=BLOCK, num_warps=WARPS)
        return out
"""
SOFTMAX = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)

def get_inputs():
    return [torch.randn(4096, 2048)]

def get_init_inputs():
    return []
"""
SOFTMAX_KERNEL = """
@triton.jit
def softmax_kernel(x_ptr, out_ptr, stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * stride + offsets, mask=mask, other=-float("inf"))
    x = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * stride + offsets, x / tl.sum(x, axis=0), mask=mask)

class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        rows, columns = x.shape
        block = triton.next_power_of_2(columns)
        softmax_kernel[(rows,)](x, out, columns, columns, BLOCK=block, num_warps=WARPS)
        return out
"""
LAYER_NORM = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        return self.norm(x)

def get_inputs():
    return [torch.randn(4096, 1024)]

def get_init_inputs():
    return [1024]
"""
LAYER_NORM_KERNEL = """
@triton.jit
def norm_kernel(x_ptr, w_ptr, b_ptr, out_ptr, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / columns
    centred = tl.where(mask, x - mean, 0.0)
    variance = tl.sum(centred * centred, axis=0) / columns
    y = centred / tl.sqrt(variance + eps)
    w = tl.load(w_ptr + offsets, mask=mask)
    b = tl.load(b_ptr + offsets, mask=mask)
    tl.store(out_ptr + row * columns + offsets, y * w + b, mask=mask)

class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        columns = x.shape[-1]
        norm_kernel[(x.numel() // columns,)](
            x, self.norm.weight, self.norm.bias, out, columns, self.norm.eps,
            BLOCK=triton.next_power_of_2(columns), num_warps=WARPS,
        )
        return out
"""
MATMUL = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, a, b):
        return a @ b

def get_inputs():
    return [torch.randn(1024, 1024), torch.randn(1024, 1024)]

def get_init_inputs():
    return []
"""
MATMUL_KERNEL = """
@triton.autotune(
    configs=[
        triton.Config({"BM": 64, "BN": 64, "BK": 32}, num_warps=4, num_stages=3),
        triton.Config({"BM": 128, "BN": 64, "BK": 16}, num_warps=WARPS, num_stages=2),
        triton.Config({"BM": 32, "BN": 64, "BK": 32}, num_warps=4, num_stages=3),
    ],
    key=["m", "n", "k"],
)
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, m, n, k, am, ak, bk, bn, cm, cn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, k, BK):
        at = start + inner
        a = tl.load(a_ptr + rows[:, None] * am + at[None, :] * ak, mask=(rows[:, None] < m) & (at[None, :] < k), other=0.0)
        b = tl.load(b_ptr + at[:, None] * bk + columns[None, :] * bn, mask=(at[:, None] < k) & (columns[None, :] < n), other=0.0)
        total = tl.dot(a, b, total, input_precision="ieee")
    mask = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c_ptr + rows[:, None] * cm + columns[None, :] * cn, total, mask=mask)

class ModelNew(nn.Module):
    def forward(self, a, b):
        m, k = a.shape
        n = b.shape[1]
        c = torch.empty((m, n), device=a.device, dtype=a.dtype)
        grid = lambda meta: (triton.cdiv(m, meta["BM"]), triton.cdiv(n, meta["BN"]))
        matmul_kernel[grid](
            a, b, c, m, n, k, a.stride(0), a.stride(1), b.stride(0), b.stride(1), c.stride(0), c.stride(1)
        )
        return c
"""
TASKS = {
    "add": (ADD, ADD_KERNEL),
    "softmax": (SOFTMAX, SOFTMAX_KERNEL),
    "layer_norm": (LAYER_NORM, LAYER_NORM_KERNEL),
    "matmul": (MATMUL, MATMUL_KERNEL),
}


def pairs(of_each: int) -> Iterator[Pair]:
    """`of_each` candidates of each task, no two the same text; block sizes and warps differ."""
    for number in range(of_each):
        for name, (reference, kernel) in TASKS.items():
            constants = f"BLOCK = {(512, 1024, 2048, 4096)[number % 4]}\nWARPS = {(4, 8)[number // 4 % 2]}\n"
            yield Pair(f"{name}_{number}", reference, f"{_HEAD}{constants}NUMBER = {number}\n{kernel}")


def _twice(code: str, name: str) -> str:
    return _HEAD + "WARPS = 4\n" + code.replace("class ModelNew", f"class {name}")


_INPUTS = SOFTMAX[SOFTMAX.index("def get_inputs") :]
_SLOWED = SOFTMAX_KERNEL.replace(
    "softmax_kernel[(rows,)](x, out, columns, columns, BLOCK=block, num_warps=WARPS)",
    "softmax_kernel[(rows + rows // 20,)](x, out, columns, columns, rows, BLOCK=block, num_warps=WARPS)",
).replace(
    "def softmax_kernel(x_ptr, out_ptr, stride, columns, BLOCK: tl.constexpr):\n    row = tl.program_id(0)",
    "def softmax_kernel(x_ptr, out_ptr, stride, columns, rows, BLOCK: tl.constexpr):\n    row = tl.program_id(0) % rows",
)
SOFTMAX_AS_REFERENCE = (
    _twice(SOFTMAX_KERNEL, "Model") + _INPUTS,
    _twice(SOFTMAX_KERNEL, "ModelNew"),
    _twice(_SLOWED, "ModelNew"),
)
"""A reference that launches a kernel, a candidate that is the same, and one that does a twentieth of the rows twice."""

_SOFTMAX_NEW = _HEAD + "WARPS = 4\n" + SOFTMAX_KERNEL
WAITS = _SOFTMAX_NEW.replace(
    "        return out",
    "        torch.cuda.synchronize()\n        assert out[0, 0].item() >= 0\n        return out",
)
WAITING_REFERENCE = SOFTMAX.replace(
    "return torch.softmax(x, dim=-1)",
    "top = x.max().item()\n        return torch.softmax(x - top * 0.0, dim=-1)",
)
NEVER_ENDS = _SOFTMAX_NEW.replace(
    "def softmax_kernel(x_ptr, out_ptr, stride, columns, BLOCK: tl.constexpr):",
    "def softmax_kernel(x_ptr, out_ptr, stride, columns, again, count_ptr, BLOCK: tl.constexpr):\n"
    "    turns = again\n"
    "    while turns > 0:\n"
    "        turns = turns + tl.atomic_add(count_ptr, 0)",
).replace(
    "        softmax_kernel[(rows,)](x, out, columns, columns, BLOCK=block",
    "        count = torch.zeros(1, dtype=torch.int32, device=x.device)\n"
    "        again = 2 * int(x.numel() > 1 << 20)\n"
    "        softmax_kernel[(rows,)](x, out, columns, columns, again, count, BLOCK=block",
)
OFFENDERS = {
    "candidate waits": Pair("candidate waits", SOFTMAX, WAITS),
    "reference waits": Pair("reference waits", WAITING_REFERENCE, _SOFTMAX_NEW),
    "never ends": Pair("never ends", SOFTMAX, NEVER_ENDS),
}
"""Who waits for the GPU in `forward`, on either side, and a kernel that does not end at the task's own size."""
