"""How far a result is off, for what a failure means: wrong, fragile, or the answer to something else."""

from __future__ import annotations

import dataclasses

import torch

from kernelmill.evaluate import generators
from kernelmill.evaluate.reference import Answer
from kernelmill.evaluate.session import Returned
from kernelmill.evaluate.tolerance import Comparison
from kernelmill.evaluate.trial import Trial, rms
from kernelmill.evaluate.values import Call

GROSS = 1e-2
"""Relative error from which on a stressed result is wrong rather than fragile."""
MARGIN = 2
"""How many times the tolerance a result may be off there and count as fragile: rounding grows with the numbers."""
ALIKE = 0.5
"""Correlation from which on two errors are the same."""


def gross(returned: Returned, answer: Answer, scale: list[float], name: str) -> bool:
    if returned.outputs is None:
        return True
    for got, exact, own in zip(returned.outputs.leaves, answer.exact.leaves, scale, strict=True):
        if got.shape != exact.shape or not got.is_floating_point():
            return True
        against = rms(exact) if name == "x1e-3" else max(rms(exact), own)
        if rms(got.double() - exact.double()) > GROSS * against:
            return True
    return False


def one_of_equals(returned: Returned, answer: Answer) -> Returned:
    """For inputs that are alike: which of several equal elements is the greatest, nobody has to say as torch does."""
    if returned.outputs is None or returned.outputs.structure != answer.eager.structure:
        return returned
    leaves = [
        eager if not got.is_floating_point() and (got.shape, got.dtype) == (eager.shape, eager.dtype) else got
        for got, eager in zip(returned.outputs.leaves, answer.eager.leaves, strict=True)
    ]
    return dataclasses.replace(returned, outputs=dataclasses.replace(returned.outputs, leaves=leaves))


def a_little_off(trial: Trial, call: Call, returned: Returned, seed: int, found: Comparison) -> bool:
    """Wrong in few places or digits, as a plain mistake is that not every draw shows. An old or another answer is far off."""
    answer = trial.session.expected(call, seed)
    return found.status == "INCORRECT_NUMERICAL" and not gross(returned, answer, trial.scale, "own")


def beyond(found: Comparison) -> bool:
    """Whether it is more than a few times as far off as it may be."""
    if found.bound is None:
        return True
    off = (found.relL2_eps or 0.0, found.elem_eps or 0.0)
    return any(one > MARGIN * most for one, most in zip(off, found.bound, strict=True))


def systematic(trial: Trial, call: Call, returned: Returned, seed: int) -> bool:
    """Whether the error is nearly the same when the inputs are moved a little.

    That of a formula which is another one is; what rounding and cancellation leave is new each time.
    """
    moved = generators.nudged(call, trial.roles, trial.generator)
    again = trial.session.call(moved, seed, tolerate=True)
    both = [trial.session.expected(one, seed) for one in (call, moved)]
    if returned.outputs is None or again.outputs is None or trial.session.compare(again, both[1]).ok:
        return again.outputs is None
    first, second = (_errors(one, answer) for one, answer in zip((returned, again), both, strict=True))
    if first.shape != second.shape:
        return True
    return float(first @ second) > ALIKE * float(first.norm() * second.norm())


def _errors(returned: Returned, answer: Answer) -> torch.Tensor:
    """Of all floating outputs in a row, each relative to its size; zero where they are not finite."""
    assert returned.outputs is not None
    pairs = zip(returned.outputs.leaves, answer.exact.leaves, strict=False)
    errors = [
        ((got.double() - exact.double()) / (rms(exact) or 1.0)).nan_to_num(0, 0, 0).flatten()
        for got, exact in pairs
        if got.is_floating_point() and got.shape == exact.shape
    ]
    return torch.cat(errors) if errors else torch.zeros(0)


def constant(leaf: torch.Tensor) -> bool:
    return leaf.numel() < 2 or bool((leaf == leaf.reshape(-1)[0]).all())


def identical(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    first, second = (t.contiguous().reshape(-1).view(torch.uint8) for t in (a, b))
    return bool(torch.equal(first, second))
