"""Test cases for a candidate, with the right answers: calls of a reference with several kinds of inputs.

A case that cannot tell right from wrong is skipped, and `Skipped` says why: the reference raises, the oracle
is not finite, eager overflows, or one rounding of the inputs moves the answer by far more than a candidate is
allowed.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from kernelmill.evaluate.judge.tolerance import IEEE, Policy, judgeable
from kernelmill.evaluate.task.answers import Answer
from kernelmill.evaluate.task.generators import (
    DISTRIBUTIONS,
    distribution,
    other_weights,
    settle_signs,
)
from kernelmill.evaluate.task.reference import BadReference, Reference
from kernelmill.evaluate.task.roles import Role, roles
from kernelmill.evaluate.task.values import Call

DRAWS = 4
"""Number of the task's own draws from which the roles are inferred."""


@dataclass
class Case:
    name: str
    seed: int
    model: Any
    """The reference model that gives the answer. In the case `weights` it has other weights."""
    call: Call
    answer: Answer


@dataclass
class Skipped:
    name: str
    reason: str


class Questions:
    """The cases for one model of a reference. `model` is in the mode to judge in."""

    def __init__(self, reference: Reference, model: Any, seed: int, policy: Policy = IEEE) -> None:
        self.reference = reference
        self.model = model
        self.seed = seed
        self.policy = policy
        self._wide = reference.oracle(model)
        self.roles: list[Role] = roles([reference.inputs(seed + i) for i in range(DRAWS)])
        call, generator = reference.inputs(seed), torch.Generator().manual_seed(seed)
        settle_signs(call, self.roles, generator, self._accepts)

    def own(self, seed: int) -> Case | Skipped:
        return self._case("own", seed, self.model, self._wide, self.reference.inputs(seed))

    def other(self, name: str, seed: int) -> Case | Skipped:
        """The case for one of `DISTRIBUTIONS`."""
        generator = torch.Generator().manual_seed(seed)
        call = distribution(name, self.reference.inputs(seed), self.roles, generator)
        if call is None:
            return Skipped(name, "no input is of that kind")
        return self._case(name, seed, self.model, self._wide, call)

    def weights(self, seed: int) -> Case | Skipped:
        """The case with other weights, on the task's own inputs, made zero-mean if the reference allows."""
        generator = torch.Generator().manual_seed(seed)
        state = other_weights(self.model, generator)
        if not state:
            return Skipped("weights", "it has no weights")
        model = copy.deepcopy(self.model)
        model.load_state_dict(state, strict=False)
        own = self.reference.inputs(seed)
        call = distribution("zero_mean", own, self.roles, generator) or own
        return self._case("weights", seed, model, self.reference.oracle(model), call)

    def all(self, seed: int, names: Iterable[str] = DISTRIBUTIONS[1:]) -> Iterator[Case | Skipped]:
        for offset, name in enumerate(names):
            yield self.other(name, seed + offset)
        yield self.weights(seed)

    def _case(self, name: str, seed: int, model: Any, wide: Any, call: Call) -> Case | Skipped:
        try:
            answer = self.reference.answer(model, call, seed, wide)
            nudged = None if answer.note else self.reference.nudged(wide, call, seed)
        except BadReference as error:
            return Skipped(name, f"the reference refuses such inputs: {error}")
        if answer.note and not self.reference.oracle_note:
            return Skipped(name, answer.note)
        for index, (exact, eager) in enumerate(zip(answer.exact.leaves, answer.eager.leaves, strict=True)):
            moved = nudged.leaves[index] if nudged is not None else None
            if reason := judgeable(exact, eager, moved, self.policy):
                return Skipped(name, f"{answer.eager.paths[index]}: {reason}")
        return Case(name, seed, model, call, answer)

    def _accepts(self, call: Call) -> bool:
        try:
            outputs = self.reference.run_exact(self._wide, call, self.seed)
        except BadReference:
            return False
        return all(bool(torch.isfinite(leaf).all()) for leaf in outputs.leaves)
