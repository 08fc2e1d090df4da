"""The judge of Triton candidates without a GPU: a `kernelmill.sandbox` worker with a companion process.

The companion runs the candidate in Triton's interpreter. The environment must have TRITON_INTERPRET=1 before
triton is imported.
"""

from __future__ import annotations

import socket
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from kernelmill.evaluate import interpreter
from kernelmill.evaluate.judge import candidate, judging
from kernelmill.evaluate.judge.channel import Bytes, Carrier
from kernelmill.evaluate.judge.judging import handle
from kernelmill.evaluate.trace.candidate import TracedCandidate

__all__ = ["Interpreted", "companion", "handle", "prepare"]

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
    interpreter.prepare()
    judging.prepare(_WARM_UP)


def companion(end: socket.socket) -> None:
    warnings.simplefilter("ignore")
    candidate.serve(end, Interpreted(), TracedCandidate)


class Interpreted:
    """The interpreter as a candidate's `Runtime`: ordinary memory that looks like CUDA, every access observed."""

    def __init__(self) -> None:
        self.pausing: Callable[[], AbstractContextManager[None]] = nullcontext

    def install(self, request: dict[str, Any]) -> None:
        interpreter.install()

    def begin(self, request: dict[str, Any]) -> None:
        interpreter.observer.begin(
            suppress=frozenset(request.get("suppress") or ()),
            suppress_all=bool(request.get("suppress_all")),
            config=request.get("config"),
            order=request.get("order", "forward"),
            strict=bool(request.get("strict")),
            poison=bool(request.get("poison", True)),
        )

    def end(self) -> interpreter.Observed:
        observed = interpreter.observer.end()
        # The compiler needs to know which autotuner configuration a signature belongs to.
        seen = [observed.signatures[one.signature] | {"config": one.config} for one in observed.launches]
        observed.signatures = [one for i, one in enumerate(seen) if one not in seen[:i]]
        return observed

    def carriers(self, blobs: list[memoryview]) -> tuple[Carrier, Carrier]:
        return Bytes(blobs), Bytes()

    def settle(self) -> None:
        """Do nothing: the interpreter's calls are synchronous."""

    def building(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def placed(self, model: Any) -> Any:
        interpreter.place(model)
        return model

    @contextmanager
    def recording(self, recorder: Any) -> Iterator[None]:
        interpreter.observer.on_launch = recorder.launched
        try:
            yield
        finally:
            interpreter.observer.on_launch = None

    def unsupported(self, error: BaseException) -> str | None:
        return interpreter.is_unsupported(error)

    def progress(self, error: BaseException) -> str:
        return interpreter.progress(error)
