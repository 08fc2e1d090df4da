"""Proves one claim (this parent made of these children computes what the original does), or looks at emitted files one by one: a
worker for `kernelmill.isolate`. It executes strangers' code, so call `handle` in a confined process and nowhere else.

In this order, so that what is cheap and says most comes first:

    trace      both sides at full size on tensors without memory: outputs, operations, who does them, which weights are read
    weights    the map names every one of them, with the same shape and type
    numbers    three seeds, each side with its own copy of inputs and weights (`prove_numbers`)

Not covered: the sides share this process, so code that gets at torch itself could lie; `prove_child` is what keeps it out, and
`prove_intact` notices most of it.
"""

from __future__ import annotations

import os
import random
import warnings
from collections import Counter
from contextlib import ExitStack
from typing import Any

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # a `@torch.compile` would start compilers, which a child may not

import torch
from torch import nn

from kernelmill.decompose import prove_operations as operations
from kernelmill.decompose.fake import Fakes
from kernelmill.decompose.prove_build import (
    ORIGINAL,
    Original,
    Refactored,
    build_for_numbers,
    bytes_in_blocks,
    held_tensors,
    registered,
    resolve,
    unless_out_of_memory,
)
from kernelmill.decompose.prove_intact import Intact
from kernelmill.decompose.prove_numbers import Numbers, compare_numbers
from kernelmill.decompose.prove_operations import Done, tensors_in
from kernelmill.decompose.prove_record import Recorder, WholeSequences, shapes_of
from kernelmill.decompose.prove_sizes import (
    Cost,
    Limits,
    Rule,
    Shape,
    choose,
    elements_of,
    narrowed,
    numbers_in,
)
from kernelmill.decompose.prove_values import Comparison, State, form
from kernelmill.decompose.shortcuts import no_shortcuts
from kernelmill.evaluate import offline_models
from kernelmill.problems import trace_worker
from kernelmill.problems.module_file import forget, where


def prepare() -> None:
    """What torch does only once, before there are children."""
    warnings.simplefilter("ignore")
    trace_worker.prepare()
    offline_models.prepare()
    with torch.no_grad():
        original = Original(_WARM_UP, None)
        for fake, train in ((True, False), (True, True), (False, False)):
            _traced(original, original, fake, train)
        model = original.build()
        State(model).draw(0, False)
        Comparison().add("output", model.eval()(torch.rand(2, 3, 8, 8)), model(torch.rand(2, 3, 8, 8)))
    forget(ORIGINAL)


def handle(request: dict[str, Any]) -> dict[str, Any]:
    """`files`: {name: text} to look at one by one. Otherwise a claim: `original`, `entry_point`, `refactored` ({path: text}), `main`
    (the parent's path), `weight_map`, `limits` (of a run for numbers: bytes, operations),
    `threads` (for numbers; one, if it is not said)."""
    warnings.simplefilter("ignore")
    torch.backends.mha.set_fastpath_enabled(False)  # a fused road that only eval mode without gradients takes
    with torch.no_grad(), no_shortcuts():
        if "files" in request:
            return {"files": {name: look(code) for name, code in request["files"].items()}}
        torch.set_num_threads(request.get("threads", 1))
        return Claim(request).prove()


def look(code: str) -> dict[str, Any]:
    """What an emitted file takes and gives at full size, or why it does not run."""
    try:
        run = _first_trace(Original(code, None))[1]
    except Exception as error:  # noqa: BLE001  a stranger's code may raise anything
        return {"error": where(error, "original.py")}
    return {
        "inputs": shapes_of(run.given),
        "outputs": shapes_of(run.output),
    }


class Run:
    """One run of one side, as it was seen."""

    def __init__(self, model: nn.Module, given: Any, output: Any, recorder: Recorder) -> None:
        self.model, self.given, self.output, self.recorder = model, given, output, recorder
        self.form = form(output)
        self._held = list({id(t): t for t in held_tensors(model).values()}.values())

    def cost(self) -> Cost:
        elements = elements_of(self.given) + elements_of(self.output) + 2 * self.recorder.largest
        weights = sum(t.numel() * t.element_size() for t in self._held)
        return Cost(
            elements, self.recorder.flops, self.recorder.written, weights, bytes_in_blocks(self._held)
        )


def _traced(
    side: Original | Refactored,
    original: Original,
    fake: bool,
    train: bool,
    rules: list[Rule] | None = None,
    real_weights: bool = False,
) -> Run:
    torch.manual_seed(0)
    random.seed(0)
    model = build_for_numbers(side) if real_weights else None
    with ExitStack() as stack:
        fakes = stack.enter_context(Fakes()) if fake else None
        torch.manual_seed(0)  # the same inputs for both sides, whatever making a model drew
        args, kwargs = narrowed(original.inputs(), rules or [])
        if model is None:
            model = side.build()
        model.train(train)
        children = {m: name for name, m in model.named_children()} if isinstance(side, Refactored) else {}
        recorder = Recorder(children, held_tensors(model))
        stack.enter_context(recorder)
        stack.enter_context(WholeSequences(recorder, fake))
        stack.enter_context(recorder.following())
        if fakes is not None:
            stack.enter_context(fakes.knowing())
        return Run(model, (args, kwargs), model(*args, **kwargs), recorder)


def _first_trace(original: Original) -> tuple[tuple[bool, bool], Run]:
    """Without memory; where the module looks at numbers, with real weights; where that is not enough, for real."""
    trouble: Exception | None = None
    for fake, real_weights in ((True, False), (True, True), (False, True)):
        try:
            return (fake, real_weights), _traced(original, original, fake, False, [], real_weights)
        except Exception as error:  # noqa: BLE001  the last road shows whether it is the module's own
            unless_out_of_memory(error)
            trouble = error
    assert trouble is not None
    raise trouble


class Claim:
    def __init__(self, request: dict[str, Any]) -> None:
        self._request = request
        self._map: dict[str, str] = request["weight_map"]
        self.faults: list[str] = []
        self.result: dict[str, Any] = {}

    def prove(self) -> dict[str, Any]:
        try:
            self._original = Original(self._request["original"], self._request.get("entry_point"))
            mode, eval_original = _first_trace(self._original)
        except Exception as error:  # noqa: BLE001
            unless_out_of_memory(error)
            return {"status": "ERROR", "lines": [f"the original does not run: {where(error, 'original.py')}"]}
        self._fake, self._real_weights = mode
        intact = Intact()
        try:
            self._refactored = Refactored(self._request["refactored"], self._request["main"])
            eval_refactored = self._trace(self._refactored, False)
        except Exception as error:  # noqa: BLE001
            unless_out_of_memory(error)
            return {"status": "FAIL", "lines": [f"the refactored does not run: {_said(error)}"]}
        self._outputs(eval_original, eval_refactored)
        self._children(eval_original, eval_refactored)
        self._coverage(eval_original, eval_refactored)
        self._weights(eval_original, eval_refactored)
        if not self.faults:
            self._numbers(eval_original, eval_refactored)
        self.faults += self._lost
        self.faults += [f"the run changed {name}" for name in intact.changes()[:3]]
        self.result["lines"] = self.faults
        self.result.setdefault("status", "FAIL" if self.faults else "PASS")
        return self.result

    def _trace(self, side: Original | Refactored, train: bool, rules: list[Rule] | None = None) -> Run:
        return _traced(
            side, self._original, self._fake, train, rules, self._real_weights and side is self._original
        )

    def _outputs(self, one: Run, other: Run) -> None:
        if one.form != other.form:
            mine, theirs = _first_difference(one.form, other.form)
            self.faults.append(f"at full size the original gives {mine}, the refactored {theirs}")
        self.result["shapes"] = {
            "inputs": shapes_of(one.given),
            "outputs": shapes_of(one.output),
        }

    def _children(self, one: Run, other: Run) -> None:
        """All computation is inside children, and not all of it in one."""
        recorder = other.recorder
        violations = [f"the parent computes: {op} x{n}" for op, n in sorted(recorder.outside.items())]
        violations += [
            f"the parent makes views: {op} x{n}" for op, n in sorted(recorder.outside_views.items())
        ]
        whole = [name for name, done in recorder.called if one.recorder.operations <= done]
        if whole and not self._request.get("single"):
            violations.append(f"everything is computed in one child, {whole[0]}")
        self.result["runtime_violations"] = violations
        self.result["children"] = recorder.given_to
        self.faults += violations

    def _coverage(self, one: Run, other: Run) -> None:
        self.result["operations"] = {
            "original": dict(one.recorder.operations),
            "refactored": dict(
                other.recorder.operations - other.recorder.outside - other.recorder.outside_views
            ),
            "method": f"dispatch trace on {'fake' if self._fake else 'real'} tensors",
        }
        lost = one.recorder.operations - other.recorder.operations
        self.faults += [
            f"an operation of the original is in no child: {op} x{n}" for op, n in sorted(lost.items())
        ]
        self._lost = [] if lost else operations.lost(one.recorder.done(), other.recorder.done())
        self._same_calls = one.recorder.calls == other.recorder.calls
        self._other_calls = sorted((other.recorder.calls - one.recorder.calls).keys())[:3]
        self.result["same_operations_and_arguments"] = self._same_calls

    def _weights(self, one: Run, other: Run) -> None:
        """The map names every weight of the refactored and every one that the original reads."""
        tensors, theirs = one.recorder.tensors, held_tensors(other.model)
        lines: list[str] = []
        mapped, given = set[int](), set[int]()
        for name, source in self._map.items():
            # A model may put another tensor in the place of one that it has read.
            to, of = resolve(other.model, name), tensors.get(source, resolve(one.model, source))
            if of is not None:
                mapped.add(id(of))
            given.add(id(to))  # tied weights have one of their names in the map
            if to is None or of is None:
                side, missing = ("refactored", name) if to is None else ("original", source)
                lines.append(f"the weight map names {missing}, which the {side} does not have")
            elif to.shape != of.shape or to.dtype != of.dtype:
                lines.append(f"{name} is {_of(to)}, {source} is {_of(of)}")
        used = sorted(name for name in one.recorder.used if name in tensors)
        unread = [name for name in used if id(tensors[name]) not in mapped]
        unset = sorted(
            name for name, tensor in theirs.items()
            if name not in self._map and id(tensor) not in given and (tensor.is_floating_point() or tensor.is_complex())
        )  # fmt: skip
        own = sorted(name for name in registered(other.model) if "." not in name)
        self.result["weight_transfer"] = {
            "status": "FAIL" if lines or unread or unset else "PASS",
            "mapped_count": len(self._map),
            "unmapped_original": unread,
            "unmapped_refactored": unset,
        }
        self.result["parameter_violations"] = [f"the parent has a weight of its own: {name}" for name in own]
        self.faults += lines + self.result["parameter_violations"]
        self.faults += [f"the original reads {name}, which is not in the weight map" for name in unread]
        self.faults += [f"{name} of the refactored is not in the weight map" for name in unset]

    def _numbers(self, one: Run, other: Run) -> None:
        shapes: list[Shape] = [tuple(t.shape) for t in tensors_in(one.given)]

        full_size = one.recorder.done(), other.recorder.done()
        at: dict[tuple[Rule, ...], tuple[Done, Done]] = {(): full_size}

        def estimate(rules: list[Rule]) -> Cost | None:
            try:
                small, also = (
                    self._trace(self._original, False, rules),
                    self._trace(self._refactored, False, rules),
                )
            except Exception:  # noqa: BLE001  it does not run at this size, so this size is not used
                return None
            at[tuple(rules)] = small.recorder.done(), also.recorder.done()
            return small.cost().most(also.cost()) if small.form == also.form else None

        def compared(rules: list[Rule], cost: Cost) -> tuple[Numbers, str | None, list[str]]:
            train, why, faults = self._train_mode(one, other, rules, at[tuple(rules)][1])
            if (unlike := operations.other_at_full_size(full_size, at[tuple(rules)])) is not None:
                faults.append(unlike)
            found = compare_numbers(
                self._original,
                self._refactored,
                self._map,
                shapes,
                rules,
                cost,
                train,
                Limits(*self._request["limits"]),
                drawn=full_size[0].steps != full_size[1].steps,
            )
            return found, why, faults + found.faults

        full = one.cost().most(other.cost())
        rules, cost = choose(full, shapes, numbers_in(one.given), estimate) if self._fake else ([], full)
        found, why, faults = compared(rules, cost)
        if faults and rules:
            # A size that a part has as a number is right at the model's own sizes, and those are what the claim is about.
            at_full_size = compared([], full)
            if at_full_size[0].error is None:
                found, why, faults = at_full_size
        self.faults += faults
        if found.error is not None:
            self.result["status"] = "ERROR"
            if found.needs is not None:
                self.result["needs"] = list(found.needs)
            self.faults.append(found.error)
        elif found.constant and not self._same_calls and not found.faults:
            # The numbers cannot tell, so the operations have to.
            self.faults.append(
                f"every output is constant, and the refactored has other operations: {self._other_calls}"
            )
        elif not found.bitwise and (more := full_size[1].settings - full_size[0].settings):
            self.faults.append(
                f"the numbers are not the same bit for bit, and the refactored has {min(more)}, too"
            )
        self.result["numerical_comparison"] = found.as_json() | {"train": why or found.train}

    def _train_mode(
        self, one: Run, other: Run, rules: list[Rule], in_eval: Done
    ) -> tuple[bool, str | None, list[str]]:
        """Whether train mode is compared too; if not, why; and what is wrong already."""
        try:
            original = self._trace(self._original, True, rules).recorder
        except Exception as error:  # noqa: BLE001
            return (
                False,
                f"not compared (the original does not run in train mode: {where(error, 'original.py')})",
                [],
            )
        try:
            refactored = self._trace(self._refactored, True, rules).recorder
        except Exception as error:  # noqa: BLE001
            return False, "FAIL", [f"the refactored does not run in train mode: {_said(error)}"]
        if original.written_down != one.recorder.written_down:  # BigBird draws random blocks
            return False, "not compared (the original has other constants in train mode)", []
        # What stands for writing in place is there in both modes.
        original.operations += other.recorder.operations - one.recorder.operations
        if original.operations == refactored.operations:
            changes = (
                original.operations != other.recorder.operations
                or bool(original.of_training_modules)
                or refactored.done().steps != in_eval.steps
            )
            return (
                (True, None, [])
                if changes
                else (False, "not needed (the same operations as in eval mode)", [])
            )
        lost = original.of_training_modules - refactored.operations
        if lost or original.operations == other.recorder.operations:
            other_ops = Counter(original.operations)
            other_ops.subtract(refactored.operations)
            named = ", ".join(f"{op} {-n:+}" for op, n in sorted(other_ops.items()) if n)
            return (
                False,
                "FAIL",
                [f"in train mode the refactored has other operations than the original: {named}"],
            )
        changed = sorted((original.operations - other.recorder.operations).keys())
        why = f"not compared (the original does other operations in train mode: {', '.join(changed)})"
        return False, why, []


def _first_difference(one: list[str], other: list[str]) -> tuple[str, str]:
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            return mine, theirs
    return f"{len(one)} parts", f"{len(other)} parts"


def _of(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _said(error: BaseException) -> str:
    """With the last line of the claim's own files that it passed through."""
    line, step = "", error.__traceback__
    while step is not None:
        file = step.tb_frame.f_code.co_filename
        if "/claim/" in file:
            line = f" ({file.rpartition('/claim/')[2]} line {step.tb_lineno})"
        step = step.tb_next
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:400] + line


_WARM_UP = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 8))
        self.rest = nn.Sequential(nn.LayerNorm(8), nn.Dropout(0.1), nn.Linear(8, 8), nn.GELU(), nn.Softmax(-1))

    def forward(self, x):
        return self.rest(self.body(x)) + 1

def get_inputs():
    return [torch.rand(2, 3, 8, 8)]
"""
