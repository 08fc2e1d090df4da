"""What the interpreter cannot run: a human-readable list and its exception, importable without torch and triton.

A candidate that needs one of these is `UNSUPPORTED` on a machine without a GPU, never incorrect.
"""

from __future__ import annotations

UNSUPPORTED: dict[str, str] = {
    "inline asm": "tl.inline_asm_elementwise runs PTX, which only a GPU can",
    "dot_scaled": "tl.dot_scaled (microscaled formats) is not modelled",
    "libdevice": "a libdevice function that has no NumPy equivalent here",
    "extern": "tl.extra.cuda functions other than libdevice (clocks, SM ids, grid dependency control)",
    "cuda graph": "torch.cuda.CUDAGraph and torch.cuda.graph replay device work",
    "inductor": "kernels that run through torch._inductor's runtime heuristics",
    "waiting": "a program waits for a later one of the same launch, and here they run one after another",
    "gluon": "Gluon kernels and warp specialisation have no interpreter",
    "language": "a tl operation that this Triton's interpreter does not implement",
}


class Unsupported(Exception):
    """The interpreter cannot run this; the candidate may be right or wrong.

    `what` is a key of UNSUPPORTED.
    """

    def __init__(self, what: str, detail: str = "") -> None:
        super().__init__(f"{what}: {detail or UNSUPPORTED[what]}")
        self.what = what


TWO_LANES, NO_BARRIER = "two lanes write", "read before another lane's write is seen"
"""Kinds of races between the lanes of one program, which only a strict run finds."""
