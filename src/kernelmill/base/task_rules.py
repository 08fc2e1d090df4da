"""What a candidate is told about its task, for every prompt: who does the work, how precise, how paid, and how its answer is marked.

The judge goes by these rules (tolerances, rewards, `answers`), the prompts and feedback quote them from here, and tests hold the two
together: no prompt promises what the judge does not do. Needs the standard library alone.
"""

from __future__ import annotations

from typing import Literal

IEEE = 'input_precision="ieee"'
KEEPS_FLOAT32 = f"tl.dot(a, b, {IEEE})"
"""The product of float32 blocks that is judged as float32. The default of `tl.dot` rounds to TF32, and is refused."""

WORK = (
    "Do the work in `@triton.jit` kernels that you write and launch. PyTorch may allocate, reshape and view; "
    "it must not compute what the kernels are to compute. Do not call, copy or inherit from the original module."
)
"""Held by the hack checks A1 to A15: launches are recorded, and so is what torch computes."""

STATELESS = "Keep nothing from one call to the next, and run nothing when the code is imported."
"""Held by the hack checks B1 to B15."""

PAYMENT = (
    "A module that is wrong never earns more than one that is correct, however fast it is, "
    "and one that only pretends to do the work never earns more than a wrong one."
)
"""Holds for every reward, whichever the service is started with. Some of them pay a little for a wrong module that compiles."""

Mark = Literal["answer", "fence"]
MARKS: dict[Mark, str] = {
    "answer": "between <answer> and </answer>",
    "fence": "in one code block that begins with ```python and ends with ```, the only code block that you write",
}
"""How the code is marked in a completion. `answers` reads both."""


def precision(tf32: bool) -> str:
    """How precise products of float32 have to be, as `--tf32` has the judge take them."""
    if tf32:
        return "Products of float32 may round their operands to TF32."
    return (
        f"Products of float32 must keep float32 precision: give `tl.dot` the argument `{IEEE}`. "
        "TF32, its default, is not allowed."
    )


def rules(tf32: bool) -> dict[str, str]:
    """What every prompt template can quote, by the names that templates use."""
    return {"work": WORK, "stateless": STATELESS, "precision": precision(tf32), "payment": PAYMENT}
