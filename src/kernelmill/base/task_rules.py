"""The rules of the task as every prompt states them: the kernels' work, precision, rewards, answer marks.

The judge enforces these rules (tolerances, rewards, `answers`). Prompts and feedback quote them from here.
Tests check that the two agree, so that no prompt promises what the judge does not do. Standard library only.
"""

from __future__ import annotations

from typing import Literal

IEEE = 'input_precision="ieee"'
KEEPS_FLOAT32 = f"tl.dot(a, b, {IEEE})"
"""A product of float32 blocks that keeps float32 precision. The default of `tl.dot` rounds to TF32 and is
rejected."""

WORK = (
    "Do the work in `@triton.jit` kernels that you write and launch. PyTorch may allocate, reshape and view; "
    "it must not compute what the kernels are to compute. Do not call, copy or inherit from the original module."
)
"""Enforced by the hack checks A1 to A15, which record kernel launches and what torch computes."""

STATELESS = "Keep nothing from one call to the next, and run nothing when the code is imported."
"""Enforced by the hack checks B1 to B15."""

PAYMENT = (
    "A module that is wrong never earns more than one that is correct, however fast it is, "
    "and one that only pretends to do the work never earns more than a wrong one."
)
"""True for every reward that the service can be started with. Some of them pay a little for a wrong module
that compiles."""

Mark = Literal["answer", "fence"]
MARKS: dict[Mark, str] = {
    "answer": "between <answer> and </answer>",
    "fence": "in one code block that begins with ```python and ends with ```, the only code block that you write",
}
"""How the code is marked in a completion. `answers` reads both."""


def precision(tf32: bool) -> str:
    """The precision rule for products of float32, as set by `--tf32`."""
    if tf32:
        return "Products of float32 may round their operands to TF32."
    return (
        f"Products of float32 must keep float32 precision: give `tl.dot` the argument `{IEEE}`. "
        "TF32, its default, is not allowed."
    )


def rules(tf32: bool) -> dict[str, str]:
    """The rules that every prompt template can quote, by their names in templates."""
    return {"work": WORK, "stateless": STATELESS, "precision": precision(tf32), "payment": PAYMENT}
