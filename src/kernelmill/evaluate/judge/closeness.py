"""Measure how far a result is off, to tell if it is wrong, fragile, or the answer to another question."""

from __future__ import annotations

import dataclasses
import math

import torch

from kernelmill.evaluate.judge.choices import compare_leaf
from kernelmill.evaluate.judge.comparing import Returned
from kernelmill.evaluate.judge.tolerance import Comparison
from kernelmill.evaluate.judge.trial import Trial, rms
from kernelmill.evaluate.task import generators
from kernelmill.evaluate.task.answers import Answer
from kernelmill.evaluate.task.chunked import chunks
from kernelmill.evaluate.task.values import Call

GROSS = 1e-2
"""Relative error above which a result under stress is wrong rather than fragile."""
NOISE = 4 * torch.finfo(torch.float32).eps
"""An error so small beside the task's own outputs is cancellation, however small the result: `1 - exp(-x)`."""
MARGIN = 2
"""Multiple of the tolerance up to which such a result is fragile: rounding errors grow with the numbers."""
_FEW_PLACES = 0.01
ALIKE = 0.5
"""Correlation above which two errors count as the same."""


def gross(returned: Returned, answer: Answer, scale: list[float], name: str) -> bool:
    """Whether a wrong result is far off. A wrong index or count always is."""
    if returned.outputs is None:
        return True
    for place, (got, exact) in enumerate(zip(returned.outputs.leaves, answer.exact.leaves, strict=True)):
        if got.shape != exact.shape:
            return True
        if not got.is_floating_point():
            if not compare_leaf(got, answer.exact, answer.eager, place).ok:
                return True
            continue
        own = scale[place]
        against = rms(exact) if name == "x1e-3" else max(rms(exact), own)
        if _rms_of_error(got, exact) > max(GROSS * against, NOISE * own):
            return True
    return False


def one_of_equals(returned: Returned, answer: Answer) -> Returned:
    """Accept any index for inputs with equal elements, where it is unknown what the indices were chosen from.

    A candidate does not have to break ties as torch does.
    """
    if returned.outputs is None or returned.outputs.structure != answer.eager.structure:
        return returned
    leaves = [
        got
        if got.is_floating_point()
        or place in answer.eager.choices
        or (got.shape, got.dtype) != (eager.shape, eager.dtype)
        else eager
        for place, (got, eager) in enumerate(zip(returned.outputs.leaves, answer.eager.leaves, strict=True))
    ]
    return dataclasses.replace(returned, outputs=dataclasses.replace(returned.outputs, leaves=leaves))


def a_little_off(trial: Trial, call: Call, returned: Returned, seed: int, found: Comparison) -> bool:
    """Whether a result is wrong only in few places or digits.

    A plain mistake that not every draw shows looks like that. A stale answer, or one to another question, is
    far off.
    """
    answer = trial.session.expected(call, seed)
    if found.status != "INCORRECT_NUMERICAL":
        return False
    return _by_one_here_and_there(returned, answer) or not gross(returned, answer, trial.scale, "own")


def _by_one_here_and_there(returned: Returned, answer: Answer) -> bool:
    """Whether integers are off by one in few places, as numbers that are rounded at a half."""
    if returned.outputs is None:
        return False
    for got, exact in zip(returned.outputs.leaves, answer.exact.leaves, strict=True):
        if got.shape != exact.shape or got.is_floating_point() or exact.is_floating_point():
            continue
        off = (got.double() - exact.to(got.device).double()).abs()
        if bool((off > 0).any()):
            return bool((off <= 1).all()) and float((off > 0).double().mean()) < _FEW_PLACES
    return False


def beyond(found: Comparison) -> bool:
    """Whether an error exceeds `MARGIN` times its bound."""
    if found.bound is None:
        return True
    off = (found.relL2_eps or 0.0, found.elem_eps or 0.0)
    return any(one > MARGIN * most for one, most in zip(off, found.bound, strict=True))


def systematic(trial: Trial, call: Call, returned: Returned, seed: int) -> bool:
    """Whether the error stays nearly the same when the inputs change a little.

    The error of a different formula does. The error of rounding and cancellation is new each time.
    """
    moved = generators.nudged(call, trial.roles, trial.generator)
    again = trial.session.call(moved, seed, tolerate=True)
    both = [trial.session.expected(one, seed) for one in (call, moved)]
    if returned.outputs is None or again.outputs is None or trial.session.compare(again, both[1]).ok:
        return again.outputs is None
    first, second = (_floating(one, answer) for one, answer in zip((returned, again), both, strict=True))
    if [got.shape for got, _ in first] != [got.shape for got, _ in second]:
        return True
    return _correlated(first, second)


def _correlated(
    first: list[tuple[torch.Tensor, torch.Tensor]], second: list[tuple[torch.Tensor, torch.Tensor]]
) -> bool:
    """Whether the errors of two results, each relative to its size, are correlated."""
    products = torch.zeros(3, dtype=torch.float64)
    for (got, exact), (other, exact_of_other) in zip(first, second, strict=True):
        sizes = [rms(one) or 1.0 for one in (exact, exact_of_other)]
        for _, (a, ra, b, rb) in chunks(got, exact, other, exact_of_other):
            x, y = _error(a, ra) / sizes[0], _error(b, rb) / sizes[1]
            products += torch.stack([x @ y, x @ x, y @ y]).cpu()
    together, one, two = products.tolist()
    return bool(together > ALIKE * math.sqrt(one) * math.sqrt(two))


def _floating(returned: Returned, answer: Answer) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The floating-point outputs of the right shape, each with its exact value."""
    assert returned.outputs is not None
    pairs = zip(returned.outputs.leaves, answer.exact.leaves, strict=False)
    return [(got, exact) for got, exact in pairs if got.is_floating_point() and got.shape == exact.shape]


def _error(got: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """The difference in float64, with zero where it is not finite."""
    return (got.double() - exact.double()).nan_to_num(0, 0, 0)


def _rms_of_error(got: torch.Tensor, exact: torch.Tensor) -> float:
    squares = [_error(a, r).square().sum() for _, (a, r) in chunks(got, exact)]
    return float((torch.stack(squares).sum() / got.numel()).sqrt()) if squares else 0.0


def constant(leaf: torch.Tensor) -> bool:
    if leaf.numel() < 2:
        return True
    first = leaf[(0,) * leaf.dim()]
    return all(bool((chunk == first).all()) for _, (chunk,) in chunks(leaf))
