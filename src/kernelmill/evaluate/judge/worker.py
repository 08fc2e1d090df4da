"""The judge of Triton candidates without a GPU: a `kernelmill.sandbox` worker with two companion processes.

The companions run the candidate in Triton's interpreter. The environment must have TRITON_INTERPRET=1 before
triton is imported.
"""

from __future__ import annotations

import socket
import warnings

from kernelmill.evaluate.judge import candidate, judging
from kernelmill.evaluate.judge.interpreted import Interpreted
from kernelmill.evaluate.judge.judging import handle

__all__ = ["companion", "handle", "prepare"]

_WARM_UP = """
import torch, triton, triton.language as tl
@triton.jit
def double(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)
x = torch.ones(5, 7)
double[(3,)](x, torch.empty_like(x), x.numel(), BLOCK=16)
"""


def prepare() -> None:
    judging.prepare(_WARM_UP)


def companion(end: socket.socket) -> None:
    warnings.simplefilter("ignore")
    candidate.serve(end, Interpreted())
