"""A pair with a known verdict. A service that does not judge it correct is not ready.

Judging it also starts every process that judging needs, and shows which tier candidates reach on this
machine.
"""

from __future__ import annotations

from kernelmill.errors import ConfigError
from kernelmill.evaluate.options import Options, Pair
from kernelmill.evaluate.verdict import Verdict

_REFERENCE = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, y):
        return x + y


def get_inputs():
    return [torch.randn(4, 96), torch.randn(4, 96)]


def get_init_inputs():
    return []
"""

_CANDIDATE = """\
import torch
import torch.nn as nn
import triton
import triton.language as tl


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
        n = out.numel()
        add_kernel[(triton.cdiv(n, 256),)](x, y, out, n, BLOCK=256)
        return out
"""

KNOWN = Pair("known", _REFERENCE, _CANDIDATE)


def check(verdict: Verdict, options: Options) -> None:
    """Check the verdict on `KNOWN`, on the requested device."""
    if verdict.verdict != "correct":
        said = " ".join(verdict.error.split())[:300]
        raise ConfigError(
            f"a candidate that is known to be right was judged {verdict.status}: {said or 'no reason given'} "
            f"(kernelmill doctor says what this machine lacks; --timeout is {options.timeout:g} s)"
        )
    if options.device == "cuda" and not verdict.tier.startswith("gpu"):
        raise ConfigError(
            f"--device cuda: candidates get only as far as the {verdict.tier} here (use --device cpu)"
        )
