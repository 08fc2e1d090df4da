"""What the interpreter cannot do, and how to tell such an error from a candidate's own mistake.

A candidate that needs one of these is not judged here: the answer is "unsupported", never "incorrect".
"""

from __future__ import annotations

from triton.runtime.interpreter import InterpreterBuilder

UNSUPPORTED: dict[str, str] = {
    "inline asm": "tl.inline_asm_elementwise runs PTX, which only a GPU can",
    "fp8": "8-bit floats: conversions and tl.dot of them are not modelled",
    "dot_scaled": "tl.dot_scaled (microscaled formats) is not modelled",
    "libdevice": "a libdevice function that has no NumPy equivalent here",
    "extern": "tl.extra.cuda functions other than libdevice (clocks, SM ids, grid dependency control)",
    "cuda graph": "torch.cuda.CUDAGraph and torch.cuda.graph replay device work",
    "inductor": "kernels that run through torch._inductor's runtime heuristics",
    "gluon": "Gluon kernels and warp specialisation have no interpreter",
    "language": "a tl operation that this Triton's interpreter does not implement",
}


class Unsupported(Exception):
    """The interpreter cannot run this; the candidate may be right or wrong. `what` is a key of UNSUPPORTED."""

    def __init__(self, what: str, detail: str = "") -> None:
        super().__init__(f"{what}: {detail or UNSUPPORTED[what]}")
        self.what = what


class TooManyPrograms(Exception):
    """A call launched more programs than the interpreter's budget allows."""


def is_unsupported(error: BaseException) -> str | None:
    """The reason, if this error (or one that led to it) is a limit of the interpreter; else None."""
    seen: set[int] = set()
    step: BaseException | None = error
    while step is not None and id(step) not in seen:
        seen.add(id(step))
        if isinstance(step, Unsupported):
            return str(step)
        # Operations that the interpreter's builder lacks surface as a missing create_* method.
        if isinstance(step, AttributeError) and isinstance(getattr(step, "obj", None), InterpreterBuilder):
            return f"language: {step.name} is not in this Triton's interpreter"
        step = step.__cause__ or step.__context__
    return None
