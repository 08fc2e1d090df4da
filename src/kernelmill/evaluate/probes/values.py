"""Probes of values: other inputs, beside the task's own draws and beyond them, and outputs of few numbers."""

from __future__ import annotations

from kernelmill.evaluate.judge.closeness import (
    beyond,
    gross,
    one_of_equals,
    systematic,
)
from kernelmill.evaluate.judge.comparing import compare_over_seeds
from kernelmill.evaluate.judge.record import Stop
from kernelmill.evaluate.judge.trial import Trial
from kernelmill.evaluate.probes.provenance import ask, fitting
from kernelmill.evaluate.probes.seen import out_of_bounds, out_of_order
from kernelmill.evaluate.task import generators
from kernelmill.evaluate.task.reference import BadReference

SCALAR_SEEDS = 6
NEARBY = ("x8", "x4")
"""So close to the task's own inputs that a finite result has to be right.

The second is used only if the reference rejects the first.
"""
EQUALS = ("constant_rows", "ties", "zeros", "zero_rows")
"""Inputs with equal elements."""
REAL = ("zeros", "zero_rows", "closed_rows")
"""Inputs that real data has. Where the reference has an answer, infinity and NaN are none."""
UNPROMISED = ("ignored", "x1e4", "fewer")
"""Inputs that a task's author may not have thought of either: of these, a wrong result is only noted."""
STRESS = (
    *NEARBY,
    "x100",
    "x1e-3",
    "negated",
    "half_x64",
    *EQUALS,
    "sorted",
    "outlier",
    "shifted",
    "closed_rows",
    "x1e4",
    "wide_integers",
    "ignored",
    "fewer",
)


def zero_mean(trial: Trial) -> None:
    """Call with zero-mean inputs, since all-positive ones hide a lower precision.

    Also call with other masks, other indices, and inputs of which only the end is changed.
    """
    for name in ("zero_mean", "masks", "indices", "suffix"):
        call = trial.draw(name)
        if call is None:
            continue
        seed = trial.seed()
        returned = ask(trial, call, seed)
        if "error" in returned.reply:
            raise Stop("RUNTIME_ERROR", returned.trouble)
        found = trial.session.judge(f"distribution:{name}", call, returned, seed)
        trial.keep_scalars(returned, trial.session.expected(call, seed))
        if not found.ok:
            trial.fail(found)
        out_of_bounds(trial, returned)
        out_of_order(trial, returned)
        trial.require_own_kernels(returned, "C11.looks_at_values", f"distribution:{name}")


def stress(trial: Trial) -> None:
    """Call with ranges beyond the task's own.

    Overflow and rounding make a candidate fragile. A finite result that is far off, or that follows another
    formula, is wrong.
    """
    robust, settled = True, False
    for name in STRESS:
        if name == NEARBY[1] and settled:
            continue
        call = trial.draw(name)
        if call is None:
            continue
        settled |= name == NEARBY[0]
        seed = trial.seed()
        returned = ask(trial, call, seed)
        answer = trial.session.expected(call, seed)
        if "error" in returned.reply:
            trial.record.check(f"distribution:{name}", "fail", returned.trouble[:200], seed=seed)
            robust = False
            continue
        if name in EQUALS:
            returned = one_of_equals(returned, answer)
        found = trial.session.judge(f"distribution:{name}", call, returned, seed)
        trial.require_own_kernels(returned, "C11.looks_at_values", f"distribution:{name}")
        if found.ok:
            continue
        robust = False
        strays = bool(
            returned.reply["observed"]["oob_count"]
        )  # which says more of the index than of the kernel
        if (found.status == "NONFINITE" and name in REAL) or (
            found.status == "INCORRECT_NUMERICAL"
            and not strays
            and name not in UNPROMISED
            and (
                gross(returned, answer, trial.scale, name)
                or (name in NEARBY and beyond(found) and systematic(trial, call, returned, seed))
            )
        ):
            trial.fail(found)
        trial.record.flag("C10.fragile", "soft", distribution=name, detail=found.detail)
    trial.record.grade.robust = robust
    _nonfinite(trial)


def _nonfinite(trial: Trial) -> None:
    """Note whether NaN and infinity in the inputs show where the reference shows them. Many kernels lose them."""
    session, seed = trial.session, trial.seed()
    call = generators.with_nonfinite(session.reference.inputs(seed), trial.roles)
    if call is None or not session.parallel:  # an index that is made from NaN breaks a GPU
        return
    try:
        eager = session.reference.run(session.model, call, seed)
    except BadReference:
        return
    program = fitting(trial, call, seed)
    returned = session.call(call, seed, tolerate=True) if program is None else program.call(call, seed)
    if returned.outputs is None or returned.outputs.structure != eager.structure:
        return
    pairs = zip(returned.outputs.leaves, eager.leaves, strict=True)
    hides = any(
        a.is_floating_point()
        and a.element_size() > 1
        and a.shape == b.shape
        and bool((a.isfinite() & ~b.isfinite()).any())
        for a, b in pairs
    )
    trial.record.check(
        "nonfinite", "fail" if hides else "pass", "finite where the reference is not" if hides else ""
    )
    trial.record.grade.nonfinite = not hides
    if hides:
        trial.record.flag("C18.hides_nonfinite", "info")


def scalars(trial: Trial) -> None:
    """Judge outputs of few numbers over all seeds together."""
    eager = trial.scalars[0][1].eager
    if not any(leaf.numel() < 4 and leaf.is_floating_point() for leaf in eager.leaves):
        return
    session = trial.session
    for _ in range(SCALAR_SEEDS - len(trial.scalars)):
        seed = trial.seed()
        call = session.reference.inputs(seed)
        trial.keep_scalars(session.call(call, seed), session.expected(call, seed))
    found = compare_over_seeds(trial.scalars, session.policy)
    if found is not None:
        trial.record.check(
            "scalars",
            "pass" if found.ok else "fail",
            found.detail,
            relL2_eps=found.relL2_eps,
            bound=found.bound,
        )
        if not found.ok:
            trial.fail(found)
