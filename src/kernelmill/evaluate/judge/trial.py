"""One candidate at one shape, as the probes see it: the session, the reference's own behaviour, what a failure does."""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelmill.evaluate.judge.session import Record, Returned, Session, Stop
from kernelmill.evaluate.judge.tolerance import Comparison, is_scalar, judgeable
from kernelmill.evaluate.judge.torch_share import who_computed
from kernelmill.evaluate.judge.torch_work import Recorder, Work
from kernelmill.evaluate.task import chunked, generators
from kernelmill.evaluate.task.reference import Answer, BadReference, Facts
from kernelmill.evaluate.task.values import Call, Outputs

TF32_EPS = (600.0, 9000.0)
"""The relative error of such products is about 1,500 epsilons with rounding, and 6,000 where digits are cut off."""


@dataclass
class Trial:
    """One candidate at one shape: what the probes share."""

    session: Session
    record: Record
    facts: Facts
    random: random.Random
    audit: bool
    brief: bool = False
    """A GPU has the last word: only what it cannot see is looked at here."""
    on_gpu: bool = False
    timed: bool = False
    """Calls are timed afterwards."""
    generator: torch.Generator = field(default_factory=torch.Generator)
    roles: list[generators.Role] = field(default_factory=list)
    work: Work = field(default_factory=Work)
    """The reference's own work in one call."""
    largest: int = 1
    """Elements of the largest tensor among inputs, weights and outputs."""
    own: Call | None = None
    """One of the task's own calls. Once it has been looked at, without its numbers: shapes and types."""
    first_seed: int | None = None
    """Of the inputs that the candidate was called with first."""
    scale: list[float] = field(default_factory=list)
    """RMS of each output on the task's own inputs."""
    scalars: list[tuple[Returned, Answer]] = field(default_factory=list)
    autotuned: dict[str, int] = field(default_factory=dict)
    runs_muted: bool = False
    """It returns something when its launches are left out."""

    def seed(self) -> int:
        return self.random.getrandbits(62)

    def prepare(self) -> None:
        """Look at the reference alone: its inputs' roles, its work."""
        reference = self.session.reference
        self.generator = torch.Generator(reference.device)
        draws = [reference.inputs(self.seed()) for _ in range(3)]
        self.own = draws[0]
        self.generator.manual_seed(self.seed())
        self.roles = generators.roles(draws)
        del draws
        generators.settle_signs(self.own, self.roles, self.generator, self._accepted)
        with Recorder(keep=False) as recorder:
            reference.run(self.session.model, self.own)
        self.work = recorder.work
        answer = self.session.expected(self.own, 0)
        self.scale = [rms(leaf) for leaf in answer.exact.leaves]
        tensors = [*self.own.tensors(), *self.session.model.parameters(), *answer.eager.leaves]
        self.largest = max((tensor.numel() for tensor in tensors), default=1)

    def look_no_longer(self) -> None:
        """Its own call has served."""
        assert self.own is not None
        self.own = self.own.to("meta")

    def keep_scalars(self, returned: Returned, answer: Answer) -> None:
        """For `probes.scalars`: no more than the outputs of few numbers, for the others fill a GPU."""
        if returned.outputs is not None:
            returned = dataclasses.replace(returned, outputs=_few(returned.outputs))
        self.scalars.append((returned, Answer(_few(answer.exact), _few(answer.eager), answer.note)))

    def degenerate(self) -> bool:
        """Whether the reference gives the same for other inputs, as far as a candidate could be told apart."""
        calls = [self.session.reference.inputs(self.seed()) for _ in range(4)]
        first, *others = (self.session.expected(call, 0) for call in calls)
        leaves = zip(first.eager.leaves, *(other.eager.leaves for other in others), strict=True)
        self.session.constant = {
            place
            for place, (one, *rest) in enumerate(leaves)
            if all(chunked.identical(one, other) for other in rest)
        }
        if self.session.constant:
            self.record.task["constant_outputs"] = sorted(self.session.constant)
        given = Returned(first.eager, "", {}, 0.0)
        return bool(calls[0].tensors()) and all(self.session.compare(given, other).ok for other in others)

    def _accepted(self, call: Call) -> bool:
        """Whether the reference can take it, and its answer does not hang on one rounding of the inputs."""
        session, seed = self.session, self.seed()
        try:
            answer = session.expected(call, 0)
            wide = session.wide
            nudged = None if wide is None else session.reference.nudged(wide, call, seed).leaves
        except BadReference as error:
            if error.passing and not session.reference.alone:
                raise
            if error.passing:
                self.record.check(
                    "other_inputs", "skip", f"no room to look at them in float64: {error}"[:300]
                )
            return False
        leaves = list(zip(answer.exact.leaves, answer.eager.leaves, strict=True))
        others = nudged or [None] * len(leaves)
        return not any(judgeable(*pair, other) for pair, other in zip(leaves, others, strict=True))

    def draw(self, name: str) -> Call | None:
        """Inputs of a named distribution that the reference can take; None where there are none."""
        call = generators.distribution(
            name, self.session.reference.inputs(self.seed()), self.roles, self.generator
        )
        return call if call is not None and self._accepted(call) else None

    def refuse(self, found: Comparison) -> None:
        """Stop at a wrong result; in an audit go on, and remember the first."""
        status = found.status or "INCORRECT_NUMERICAL"
        if status == "INCORRECT_NUMERICAL" and self._like_tf32(found):
            self.record.flag("C7.error_like_tf32", "soft", relL2_eps=round(found.relL2_eps or 0.0))
        if not self.audit:
            raise Stop(status, found.detail)
        if self.record.status == "PASSED":
            self.record.status, self.record.error = status, found.detail

    def _like_tf32(self, found: Comparison) -> bool:
        """Whether products of float32 are off by what ten bits of the operands make."""
        floating = [t for t in (self.own.tensors() if self.own else ()) if t.is_floating_point()]
        return (
            self.work.arithmetic > 0
            and all(tensor.dtype == torch.float32 for tensor in floating)
            and TF32_EPS[0] <= (found.relL2_eps or 0.0) <= TF32_EPS[1]
        )

    def hack(self, code: str, **evidence: Any) -> None:
        """A hard flag; outside an audit it ends the trial."""
        self.record.flag(code, "hard", **evidence)
        if not self.audit:
            raise Stop("HACK", code)

    def hack_unless_wrong(self, code: str, **evidence: Any) -> None:
        """The same for a proof that rests on wrong values: in an audit they are no proof where values are wrong anyway."""
        if self.record.status == "PASSED":
            self.hack(code, **evidence)

    def policy(self, returned: Returned, code: str, where: str) -> None:
        """Whether the candidate's own kernels did the work in this call."""
        if not returned.launched:
            self.hack(code, during=where, found="no kernel of its own was launched", torch=top(returned))
        elif covered := who_computed(returned.said["work"], self.work, _elements(self.own), self.largest):
            self.hack(code, during=where, found=covered, torch=top(returned))


def top(returned: Returned) -> list[str]:
    ops = returned.said["work"]["ops"]
    return [str(name) for name in sorted(ops, key=ops.get, reverse=True)[:5]]


def _elements(call: Call | None) -> int:
    return max((tensor.numel() for tensor in call.tensors()), default=1) if call is not None else 1


def rms(leaf: torch.Tensor) -> float:
    return chunked.rms(leaf) if leaf.is_floating_point() or leaf.is_complex() else 0.0


def _few(outputs: Outputs) -> Outputs:
    """Without the numbers of leaves that have many."""
    # Cloned: one number may be all that is left of a large tensor whose memory it holds (smooth_l1_loss gives such).
    leaves = [leaf.clone() if is_scalar(leaf) else leaf.to("meta") for leaf in outputs.leaves]
    return Outputs(leaves, outputs.paths, outputs.structure)
