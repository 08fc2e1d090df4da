"""The null battery: candidates that do not compute the task. A task that one of them passes teaches nothing.

Each null is judged as a candidate would be: on the task's own inputs over several seeds, and on every other
case that can be built (`cases`). A null that passes the own inputs but fails another case is harmless,
and is listed. For each input tensor there is a null that does everything right but never reads this one.
Honest versions are judged too, and must pass: the exact result rounded once, and eager with
its sums in another order.

Not covered: `torch.compile` as an honest version, which needs compilers that a sandboxed process may not
start.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from kernelmill.evaluate.admit.cases import DRAWS, Case, Questions, Skipped
from kernelmill.evaluate.judge.choices import compare_leaf
from kernelmill.evaluate.judge.tolerance import IEEE, Policy, compare_scalars, is_scalar
from kernelmill.evaluate.task.answers import same
from kernelmill.evaluate.task.facts import FAR
from kernelmill.evaluate.task.reference import BadReference, Reference

SEEDS = 4

_Leaves = list[torch.Tensor]
_Null = Callable[[Reference, Case], _Leaves | None]
"""Returns this null's outputs for a case; None if it does not apply to the task."""


@dataclass
class Admission:
    admitted: bool
    reasons: list[str]
    details: dict[str, Any] = field(default_factory=dict)


def battery(reference: Reference, seed: int = 0, policy: Policy = IEEE) -> Admission:
    """Whether the task distinguishes candidates that compute it from those that do not.

    Raises `BadReference`.
    """
    facts = reference.examine(seed)
    details: dict[str, Any] = {"facts": asdict(facts)}
    if facts.random_in_eval:
        return Admission(False, ["the reference is random, also in eval mode"], details)
    if facts.distance > FAR:
        return Admission(
            False, [f"its result is mostly rounding, at the size tried: {facts.oracle_note}"], details
        )
    model = reference.new(seed)
    if facts.random:
        model.eval()
    questions = Questions(reference, model, seed, policy)
    own = [questions.own(seed + i) for i in range(SEEDS)]
    for case in own:
        if isinstance(case, Skipped):
            return Admission(False, [f"its own inputs: {case.reason}"], details)
    asked = [case for case in own if isinstance(case, Case)]
    others = list(questions.all(seed))
    details["skipped"] = {case.name: case.reason for case in others if isinstance(case, Skipped)}
    probes = [case for case in others if isinstance(case, Case)]
    details["probes"] = [case.name for case in probes]
    if not any(case.answer.eager.leaves for case in asked):
        return Admission(False, ["it returns no tensor"], details)

    reasons = []
    details["nulls"] = {}
    for name, null in NULLS.items():
        said = _judged(reference, null, asked, probes, policy)
        details["nulls"][name] = said
        if said == "passes":
            reasons.append(f"{name} passes: a candidate is accepted that {WORDS[name]}")
    passing = details["passed_through"] = _passed_through(reference, asked, probes, policy)
    if passing and all(passing.values()):
        what = "; ".join(f"{' or '.join(inputs)} as {path}" for path, inputs in passing.items())
        reasons.append(
            f"an input passed through passes: a candidate is accepted that returns {what}, unchanged"
        )
    unread = details["unread"] = _unread(reference, asked, probes, policy)
    if details["nulls"]["inputs ignored"] != "passes":  # else that is said of all of them
        reasons += [
            f"{path} does not matter: a candidate is accepted that never reads it"
            for path, said in unread.items()
            if said == "passes"
        ]
    details["honest"] = {}
    for name, honest in HONEST.items():
        trouble = _refused(reference, honest, asked, policy)
        details["honest"][name] = trouble or "passes"
        if trouble:
            reasons.append(f"an honest version is refused: {name} ({trouble})")
    return Admission(not reasons, reasons, details)


def _judged(reference: Reference, null: _Null, own: list[Case], probes: list[Case], policy: Policy) -> str:
    if null(reference, own[0]) is None:
        return "does not apply"
    if _refused(reference, null, own, policy):
        return "refused"
    return _by_probes([case.name for case in probes if _refused(reference, null, [case], policy)])


def _by_probes(caught: list[str]) -> str:
    return f"refused only by {', '.join(caught)}" if caught else "passes"


def _passed_through(
    reference: Reference, own: list[Case], probes: list[Case], policy: Policy
) -> dict[str, list[str]]:
    """The inputs that are accepted as an output, unchanged or reshaped, by output.

    Tries each input for each output.
    """
    outputs = own[0].answer.eager
    fitting = {
        path: [
            name
            for name, given in own[0].call.leaves()
            if isinstance(given, torch.Tensor) and (given.numel(), given.dtype) == (leaf.numel(), leaf.dtype)
        ]
        for path, leaf in zip(outputs.paths, outputs.leaves, strict=True)
    }
    found = {}
    for place, (path, names) in enumerate(fitting.items()):
        judged = {name: _judged(reference, _instead(place, name), own, probes, policy) for name in names}
        found[path] = [name for name, said in judged.items() if said == "passes"]
    return found


def _instead(place: int, name: str) -> _Null:
    """The correct answer with one output replaced by an input."""

    def null(reference: Reference, case: Case) -> _Leaves:
        made = list(case.answer.eager.leaves)
        made[place] = dict(case.call.leaves())[name].reshape(made[place].shape)
        return made

    return null


def _unread(reference: Reference, own: list[Case], probes: list[Case], policy: Policy) -> dict[str, str]:
    """What becomes of a candidate that never reads one of the inputs, by input."""
    draws = [dict(reference.inputs(own[0].seed + 1000 + i).leaves()) for i in range(DRAWS)]
    # A tensor that is passed twice is one input: whoever ignores one of its places may read the other.
    paths = {id(leaf): path for path, leaf in own[0].call.leaves() if isinstance(leaf, torch.Tensor)}
    return {
        path: _judged_without(reference, path, [draw.get(path) for draw in draws], own, probes, policy)
        for path in paths.values()
    }


def _judged_without(
    reference: Reference, path: str, draws: list[Any], own: list[Case], probes: list[Case], policy: Policy
) -> str:
    """How a null is judged that has other draws' values in place of one input.

    It cannot be told apart on a case whose own value it has.
    """
    apart = [case for case in own if _other_value(case, path, draws) is not None]
    if not apart:
        return "does not apply: it is the same in every draw"

    def null(reference: Reference, case: Case) -> _Leaves:
        value = _other_value(case, path, draws)
        call = case.call if value is None else case.call.replace({path: value})
        return reference.run(case.model, call, case.seed).leaves

    try:
        if _wrong(reference, null, apart, policy):
            return "refused"
        return _by_probes([case.name for case in probes if _wrong(reference, null, [case], policy)])
    except BadReference as error:
        return f"does not apply: the reference refuses another draw's: {error}"


def _other_value(case: Case, path: str, draws: list[Any]) -> torch.Tensor | None:
    """The first value that is not the case's own."""
    mine = dict(case.call.leaves())[path]
    return next((value for value in draws if isinstance(value, torch.Tensor) and not same(mine, value)), None)


def _refused(reference: Reference, null: _Null, cases: list[Case], policy: Policy) -> str:
    """What is wrong with the first wrong output, or why there is none; empty if all are accepted."""
    try:
        return _wrong(reference, null, cases, policy)
    except BadReference as error:
        return str(error)


def _wrong(reference: Reference, null: _Null, cases: list[Case], policy: Policy) -> str:
    """What is wrong with the first wrong output; empty if all are accepted.

    Scalars are judged over all cases together. Raises `BadReference`.
    """
    made = [(null(reference, case), case) for case in cases]
    results = [(leaves, case) for leaves, case in made if leaves is not None]
    for index in range(len(cases[0].answer.eager.leaves)):
        if is_scalar(cases[0].answer.eager.leaves[index]):
            rows = [
                (leaves[index], case.answer.exact.leaves[index], case.answer.eager.leaves[index])
                for leaves, case in results
            ]
            found = [compare_scalars(rows, policy)]
        else:
            found = [
                compare_leaf(leaves[index], case.answer.exact, case.answer.eager, index, policy)
                for leaves, case in results
            ]
        for comparison in found:
            if not comparison.ok:
                return f"{cases[0].answer.eager.paths[index]}: {comparison.detail}"
    return ""


# -------------------------------------------------------------------------------------------------- the nulls


def _zeros(reference: Reference, case: Case) -> _Leaves:
    return [torch.zeros_like(leaf) for leaf in case.answer.eager.leaves]


def _mean(reference: Reference, case: Case) -> _Leaves | None:
    """The mean of the correct answer; for integers and booleans the mode.

    It does not apply to a single number, where it would be the answer.
    """
    made = []
    for leaf in case.answer.eager.leaves:
        if leaf.numel() < 2:
            return None
        if leaf.is_floating_point() or leaf.is_complex():
            made.append(torch.full_like(leaf, leaf.mean().item()))
        else:
            made.append(torch.full_like(leaf, leaf.flatten().mode().values.item()))
    return made


def _permuted(reference: Reference, case: Case) -> _Leaves | None:
    """Rows shifted by one, along the first axis of size two or more."""
    made = []
    for leaf in case.answer.eager.leaves:
        axis = next((i for i, size in enumerate(leaf.shape) if size > 1), None)
        if axis is None:
            return None
        made.append(leaf.roll(1, axis))
    return made


def _half(reference: Reference, case: Case) -> _Leaves | None:
    made = []
    for leaf in case.answer.eager.leaves:
        if leaf.numel() < 2:
            return None
        flat = leaf.flatten().clone()
        flat[flat.numel() // 2 :] = 0
        made.append(flat.view(leaf.shape))
    return made


def _no_bias(reference: Reference, case: Case) -> _Leaves | None:
    model = copy.deepcopy(case.model)
    biases = [p for name, p in model.named_parameters() if name.split(".")[-1].startswith("bias")]
    if not biases:
        return None
    for bias in biases:
        bias.data.zero_()
    return reference.run(model, case.call, case.seed).leaves


def _weights_ignored(reference: Reference, case: Case) -> _Leaves | None:
    """Weights of its own, as from another seed."""
    if next(case.model.parameters(), None) is None:
        return None
    model = reference.new(case.seed + 1000)
    for mine, theirs in zip(model.modules(), case.model.modules(), strict=True):
        mine.training = theirs.training
    return reference.run(model, case.call, case.seed).leaves


def _inputs_ignored(reference: Reference, case: Case) -> _Leaves | None:
    """The answer to another call."""
    if not case.call.tensors():
        return None
    return reference.run(case.model, reference.inputs(case.seed + 1000), case.seed).leaves


def _fp16(reference: Reference, case: Case) -> _Leaves | None:
    """A float32 task's inputs and weights rounded to float16, then computed in float32."""
    if not any(leaf.dtype == torch.float32 for leaf in case.answer.eager.leaves):
        return None

    def rounded(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.half().float() if tensor.dtype == torch.float32 else tensor

    model = copy.deepcopy(case.model)
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data = rounded(tensor.data)
    return reference.run(model, case.call.map(rounded), case.seed).leaves


NULLS: dict[str, _Null] = {
    "zeros": _zeros,
    "the mean everywhere": _mean,
    "permuted rows": _permuted,
    "half of the rows": _half,
    "no bias": _no_bias,
    "weights ignored": _weights_ignored,
    "inputs ignored": _inputs_ignored,
    "float16": _fp16,
}


WORDS: dict[str, str] = {
    "zeros": "returns zeros",
    "the mean everywhere": "returns one number everywhere, the mean of the right answer",
    "permuted rows": "returns the right rows, each one place further",
    "half of the rows": "computes the first half and leaves the rest zero",
    "no bias": "leaves out the bias",
    "weights ignored": "uses weights of its own",
    "inputs ignored": "gives the answer to other inputs",
    "float16": "rounds inputs and weights to float16",
}
"""What a candidate does that is such a null."""


# -------------------------------------------------------------------------------------------- honest versions


def _rounded(reference: Reference, case: Case) -> _Leaves:
    pairs = zip(case.answer.exact.leaves, case.answer.eager.leaves, strict=True)
    return [exact.to(eager.dtype) for exact, eager in pairs]


def _another_order(reference: Reference, case: Case) -> _Leaves:
    """Eager on one thread and without the vendor library, so that its sums run in another order."""
    threads, vendor = torch.get_num_threads(), torch._C._get_mkldnn_enabled()
    torch.set_num_threads(1)
    torch._C._set_mkldnn_enabled(False)  # the public context manager warns on machines without an Intel GPU
    try:
        return reference.run(case.model, case.call, case.seed).leaves
    finally:
        torch._C._set_mkldnn_enabled(vendor)
        torch.set_num_threads(threads)


HONEST: dict[str, _Null] = {
    "the exact result, rounded": _rounded,
    "eager in another order": _another_order,
}
