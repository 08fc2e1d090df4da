"""State that the probes share about one candidate at one shape, and what happens when a probe fails."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from kernelmill.evaluate.judge.comparing import Returned
from kernelmill.evaluate.judge.record import Record, Stop
from kernelmill.evaluate.judge.recording import Recording
from kernelmill.evaluate.judge.replaying import Program
from kernelmill.evaluate.judge.session import Session
from kernelmill.evaluate.judge.tolerance import Comparison, is_scalar, judgeable
from kernelmill.evaluate.judge.torch_share import who_computed
from kernelmill.evaluate.judge.torch_work import TorchWork, TorchWorkCounter
from kernelmill.evaluate.task import chunked, generators
from kernelmill.evaluate.task.answers import Answer
from kernelmill.evaluate.task.facts import Facts
from kernelmill.evaluate.task.reference import BadReference
from kernelmill.evaluate.task.roles import Role, roles
from kernelmill.evaluate.task.values import Call, Outputs

TF32_EPS = (600.0, 9000.0)
"""Range of the relative error of TF32 products: about 1,500 epsilons with rounding, 6,000 with truncation."""

Probes = Literal["all", "before_gpu", "after_interpreter"]
"""Which probes to run: all, those that a GPU judge leaves to the interpreter, or those left to the GPU."""


@dataclass
class Trial:
    """One candidate at one shape: the session, the record, and facts about the reference."""

    session: Session
    record: Record
    facts: Facts
    random: random.Random
    audit: bool
    probes: Probes = "all"
    timed: bool = False
    """Calls are timed afterwards."""
    generator: torch.Generator = field(default_factory=torch.Generator)
    roles: list[Role] = field(default_factory=list)
    work: TorchWork = field(default_factory=TorchWork)
    """The reference's own work in one call."""
    largest: int = 1
    """Elements of the largest tensor among inputs, weights and outputs."""
    own: Call | None = None
    """One of the task's own calls. After `free_inputs` it has only shapes and types."""
    wants_trace: bool = False
    shapes_vary: bool = False
    """Each draw of the inputs has other shapes."""
    first_seed: int | None = None
    """Seed of the inputs of the candidate's first call."""
    scale: list[float] = field(default_factory=list)
    """RMS of each output on the task's own inputs."""
    scalars: list[tuple[Returned, Answer]] = field(default_factory=list)
    autotuned: dict[str, int] = field(default_factory=dict)
    program: Program | None = None
    """The candidate's call as a program, if it could be recorded."""
    first: Recording | None = None
    """The recording of its first call."""
    launches: Counter[tuple[str, int]] | None = None
    """Kernels and numbers of programs that the first program launches, if they do not depend on values."""
    unrecordable: str = ""
    """Why there is no program."""

    def seed(self) -> int:
        return self.random.getrandbits(62)

    def prepare(self) -> None:
        """Examine the reference: the roles of its inputs, its work, the scale of its outputs."""
        reference = self.session.reference
        self.generator = torch.Generator(reference.device)
        draws = [reference.inputs(self.seed()) for _ in range(3)]
        self.own = draws[0]
        self.shapes_vary = len({shapes_of(call) for call in draws}) > 1
        self.generator.manual_seed(self.seed())
        self.roles = roles(draws)
        del draws
        generators.settle_signs(self.own, self.roles, self.generator, self.accepted)
        with TorchWorkCounter(keep=False) as recorder:
            reference.run(self.session.model, self.own)
        self.work = recorder.work
        fp8 = any(t.is_floating_point() and t.element_size() == 1 for t in self.own.tensors())
        self.session.policy = dataclasses.replace(
            self.session.policy, fp8_products=fp8 and self.work.arithmetic > 0
        )
        answer = self.session.expected(self.own, 0)
        self.scale = [rms(leaf) for leaf in answer.exact.leaves]
        tensors = [*self.own.tensors(), *self.session.model.parameters(), *answer.eager.leaves]
        self.largest = max((tensor.numel() for tensor in tensors), default=1)

    def free_inputs(self) -> None:
        """Free the data of the task's own call."""
        assert self.own is not None
        self.own = self.own.to("meta")

    def keep_scalars(self, returned: Returned, answer: Answer) -> None:
        """Keep the outputs of few numbers for `battery.scalars`. Large outputs would fill a GPU."""
        if returned.outputs is not None:
            returned = dataclasses.replace(returned, outputs=_few(returned.outputs))
        self.scalars.append((returned, Answer(_few(answer.exact), _few(answer.eager), answer.note)))

    def degenerate(self) -> bool:
        """Whether the reference gives the same output for different inputs, within the tolerance."""
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
        return bool(calls[0].tensors()) and all(
            self.session.compare(given, other, lenient=False).ok for other in others
        )

    def accepted(self, call: Call) -> bool:
        """Whether the reference accepts the call, with an answer stable under one rounding of the inputs."""
        session, seed = self.session, self.seed()
        try:
            answer = session.expected(call, 0)
            oracle = session.oracle
            nudged = None if oracle is None else session.reference.nudged(oracle, call, seed).leaves
        except BadReference as error:
            if error.passing and not session.reference.exclusive:
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
        """Inputs of a named distribution that the reference accepts; None if there are none."""
        if name == "ignored" and not any("nll_loss" in op for op in self.work.ops):
            return None  # only such a loss leaves targets out
        call = generators.distribution(
            name, self.session.reference.inputs(self.seed()), self.roles, self.generator
        )
        if call is None or not self.accepted(call):
            return None
        leaves = self.session.expected(call, 0).eager.leaves if name == "wide_integers" else ()
        # Beside data, integers mean something: an expert, a page, a length. They are none when they are so large.
        return None if any(leaf.is_floating_point() for leaf in leaves) else call

    def fail(self, found: Comparison) -> None:
        """Stop at a wrong result. An audit records the first one and continues."""
        status = found.status or "INCORRECT_NUMERICAL"
        if status == "INCORRECT_NUMERICAL" and self._like_tf32(found):
            self.record.flag("C7.error_like_tf32", "soft", relL2_eps=round(found.relL2_eps or 0.0))
        if not self.audit:
            raise Stop(status, found.detail)
        if self.record.status == "PASSED":
            self.record.status, self.record.error = status, found.detail

    def _like_tf32(self, found: Comparison) -> bool:
        """Whether the error of float32 products is what operands of ten bits cause."""
        floating = [t for t in (self.own.tensors() if self.own else ()) if t.is_floating_point()]
        return (
            self.work.arithmetic > 0
            and all(tensor.dtype == torch.float32 for tensor in floating)
            and TF32_EPS[0] <= (found.relL2_eps or 0.0) <= TF32_EPS[1]
        )

    def hack(self, code: str, **evidence: Any) -> None:
        """Set a hard flag. Outside an audit this ends the trial."""
        self.record.flag(code, "hard", **evidence)
        if not self.audit:
            raise Stop("HACK", code)

    def hack_unless_wrong(self, code: str, **evidence: Any) -> None:
        """Like `hack`, for evidence that consists of wrong values.

        In an audit they prove nothing if values were wrong before.
        """
        if self.record.status == "PASSED":
            self.hack(code, **evidence)

    def look_at_memory(self, returned: Returned) -> None:
        """Report what a call did to memory that is not its own: its inputs, or what it returns."""
        reply = returned.reply
        if reply["mutated"] and not self.facts.mutates_inputs:
            self.record.flag("C16.changes_inputs", "hard", inputs=reply["mutated"])
        if "input" in reply["shares"] and not self.facts.aliases_inputs:
            self.record.flag("C17.returns_its_input", "hard")
        if "parameter" in reply["shares"] and self.work.kinds:
            self.record.flag("C17.returns_a_parameter", "hard")

    def require_same_launches(self, returned: Returned) -> None:
        """Report a hack if a call of the task's own size launches what the program does not.

        It may launch less: what a first call has prepared is there.
        """
        if self.launches is None or "error" in returned.reply:
            return
        found = Counter((str(one["kernel"]), int(one["programs"])) for one in returned.all_launched)
        if other := found - self.launches:
            (kernel, programs), _ = other.most_common(1)[0]
            self.hack("A16.other_launches", kernel=kernel, programs=programs, calls=self.session.calls)

    def require_own_kernels(self, returned: Returned, code: str, where: str) -> None:
        """Report a hack unless the candidate's own kernels did the work in this call."""
        if not returned.launched:
            self.hack(code, during=where, found="no kernel of its own was launched", torch=top(returned))
        elif covered := who_computed(returned.reply["work"], self.work, _elements(self.own), self.largest):
            self.hack(code, during=where, found=covered, torch=top(returned))


def shapes_of(call: Call) -> tuple[torch.Size, ...]:
    return tuple(tensor.shape for tensor in call.tensors())


def top(returned: Returned) -> list[str]:
    ops = returned.reply["work"]["ops"]
    return [str(name) for name in sorted(ops, key=ops.get, reverse=True)[:5]]


def _elements(call: Call | None) -> int:
    return max((tensor.numel() for tensor in call.tensors()), default=1) if call is not None else 1


def rms(leaf: torch.Tensor) -> float:
    return chunked.rms(leaf) if leaf.is_floating_point() or leaf.is_complex() else 0.0


def _few(outputs: Outputs) -> Outputs:
    """Outputs with only the shapes and types of large leaves."""
    # Clone: a scalar may be a view that keeps a large tensor's memory alive (smooth_l1_loss returns such).
    leaves = [leaf.clone() if is_scalar(leaf) else leaf.to("meta") for leaf in outputs.leaves]
    return Outputs(leaves, outputs.paths, outputs.structure)
