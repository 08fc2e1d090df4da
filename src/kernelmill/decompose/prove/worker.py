"""Prove one claim, or examine emitted files one by one: a worker for `kernelmill.sandbox`.

A claim says that a parent made of these children computes what the original does. Checks run in this order,
cheap and informative ones first:

    trace      both sides at full size on fake tensors: outputs, operations and their child, weights read
    weights    the map names every weight, with the same shape and dtype
    numbers    up to six trials with three seeds, each side with its own copy of inputs and weights (`prove.numbers`)

This executes untrusted code: call `handle` only in a sandboxed process. Not covered: both sides share this
process, so code that reaches torch itself could falsify the result. `prove.rules` keeps such code out, and
`torch_calls.snapshot` detects most of what gets past it.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from typing import Any

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # `@torch.compile` would start compilers, which a child may not do

import torch

from kernelmill.decompose.nested import form_of
from kernelmill.decompose.prove import operations
from kernelmill.decompose.prove.build import (
    ORIGINAL,
    Original,
    Refactored,
    held_tensors,
    registered,
    reraise_if_out_of_memory,
    resolve,
)
from kernelmill.decompose.prove.files import check_file
from kernelmill.decompose.prove.numbers import Numbers, compare_numbers
from kernelmill.decompose.prove.op_recorder import TooMany, shapes_of
from kernelmill.decompose.prove.operations import RunOps, tensors_in
from kernelmill.decompose.prove.rules.single_path import reads_sizes
from kernelmill.decompose.prove.sizes import Cost, Limits, Rule, Shape, choose, numbers_in
from kernelmill.decompose.prove.trace import Run, first_trace, traced
from kernelmill.decompose.prove.values import Comparison, State
from kernelmill.decompose.record.fast_paths import without_fast_paths
from kernelmill.evaluate.task import offline_models
from kernelmill.problems import trace_worker
from kernelmill.problems.module_file import forget, where
from kernelmill.torch_calls.snapshot import TorchSnapshot

_MANY = 1 << 16
_FEW = 64


def prepare() -> None:
    """Trigger torch's one-time initialisation before the server forks children."""
    warnings.simplefilter("ignore")
    trace_worker.prepare()
    offline_models.prepare()
    with torch.no_grad():
        original = Original(_WARM_UP, None)
        for fake, train in ((True, False), (True, True), (False, False)):
            traced(original, original, fake, train)
        model = original.build()
        State(model).draw(0, False)
        Comparison().add("output", model.eval()(torch.rand(2, 3, 8, 8)), model(torch.rand(2, 3, 8, 8)))
    forget(ORIGINAL)


def handle(request: dict[str, Any]) -> dict[str, Any]:
    """Examine files or prove a claim.

    With `files` ({name: text}) and `original`, examine each file. Otherwise prove a claim: `original`,
    `entry_point`, `refactored` ({path: text}), `main` (the parent's path), `weight_map`, `single` (whether
    one child may compute everything), `limits` (bytes and FLOPs of a numerical run) and `threads` (for
    numerical runs; default 1).
    """
    warnings.simplefilter("ignore")
    torch.backends.mha.set_fastpath_enabled(False)  # fused code path, only in eval mode without gradients
    with torch.no_grad(), without_fast_paths():
        if "files" in request:
            source = request["original"]
            return {"files": {name: check_file(code, source) for name, code in request["files"].items()}}
        torch.set_num_threads(request.get("threads", 1))
        return ClaimCheck(request).prove()


class ClaimCheck:
    def __init__(self, request: dict[str, Any]) -> None:
        self._request = request
        self._map: dict[str, str] = request["weight_map"]
        self.faults: list[str] = []
        self.result: dict[str, Any] = {}

    def prove(self) -> dict[str, Any]:
        try:
            self._original = Original(self._request["original"], self._request.get("entry_point"))
            mode, eval_original = first_trace(self._original)
        except Exception as error:  # noqa: BLE001
            reraise_if_out_of_memory(error)
            return {"status": "ERROR", "lines": [f"the original does not run: {where(error, 'original.py')}"]}
        self._fake, self._real_weights = mode
        torch_before = TorchSnapshot()
        try:
            self._refactored = Refactored(self._request["refactored"], self._request["main"])
            eval_refactored = self._trace(self._refactored, False)
        except Exception as error:  # noqa: BLE001
            reraise_if_out_of_memory(error)
            return {"status": "FAIL", "lines": [f"the refactored does not run: {_said(error)}"]}
        self._outputs(eval_original, eval_refactored)
        self._children(eval_original, eval_refactored)
        self._coverage(eval_original, eval_refactored)
        self._weights(eval_original, eval_refactored)
        self._other_sizes(eval_original, eval_refactored)
        if not self.faults:
            self._numbers(eval_original, eval_refactored)
        self.faults += self._lost
        self.faults += [f"the run changed {name}" for name in torch_before.changes()[:3]]
        self.result["lines"] = self.faults
        self.result.setdefault("status", "FAIL" if self.faults else "PASS")
        return self.result

    def _trace(
        self,
        side: Original | Refactored,
        train: bool,
        rules: list[Rule] | None = None,
        grown: Rule | None = None,
        most: int | None = None,
    ) -> Run:
        real_weights = self._real_weights and side is self._original
        return traced(side, self._original, self._fake, train, rules, real_weights, grown, most)

    def _outputs(self, one: Run, other: Run) -> None:
        if one.form != other.form:
            mine, theirs = _first_difference(one.form, other.form)
            self.faults.append(f"at full size the original gives {mine}, the refactored {theirs}")
        self.result["shapes"] = {
            "inputs": shapes_of(one.inputs),
            "outputs": shapes_of(one.output),
        }

    def _children(self, one: Run, other: Run) -> None:
        """Check that all computation happens inside children, and not all of it in one."""
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
        sides = one.recorder.done(), other.recorder.done()
        more = operations.added(*sides, one.recorder.writes)
        self._lost = [] if lost else [*operations.lost(*sides), *more]
        self._same_calls = one.recorder.calls == other.recorder.calls
        self._other_calls = sorted((other.recorder.calls - one.recorder.calls).keys())[:3]
        self.result["same_operations_and_arguments"] = self._same_calls

    def _weights(self, one: Run, other: Run) -> None:
        """Check that the map names all weights of the refactored side and all that the original reads."""
        tensors, theirs = one.recorder.tensors, held_tensors(other.model)
        lines: list[str] = []
        mapped, given = set[int](), set[int]()
        for name, source in self._map.items():
            # A model may replace a tensor after reading it.
            to, of = resolve(other.model, name), tensors.get(source, resolve(one.model, source))
            if of is not None:
                mapped.add(id(of))
            given.add(id(to))  # the map has only one name of tied weights
            if to is None or of is None:
                side, missing = ("refactored", name) if to is None else ("original", source)
                lines.append(f"the weight map names {missing}, which the {side} does not have")
            elif to.shape != of.shape or to.dtype != of.dtype:
                lines.append(f"{name} is {form_of(to)}, {source} is {form_of(of)}")
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

    def _other_sizes(self, one: Run, other: Run) -> None:
        """Check that the refactored side depends on a size only where the original does.

        A part that reads a size may behave differently at another one.
        """
        if self.faults or not self._fake or not any(map(reads_sizes, self._request["refactored"].values())):
            return
        own = one.recorder.done(), other.recorder.done()
        shapes = [tuple(t.shape) for t in tensors_in(one.inputs)]
        most = 2 * max(len(done.steps) for done in own) + _FEW
        for axis in range(max(map(len, shapes), default=0)):
            size = next(shape[axis] for shape in shapes if axis < len(shape))
            for new in (_MANY * size + 1, 2 * size + 1):
                rule = Rule(axis, size, new)
                try:
                    mine, theirs = (
                        self._trace(side, False, grown=rule, most=most).recorder.done()
                        for side in (self._original, self._refactored)
                    )
                except ArithmeticError as error:  # from Python's own numbers: a size is used in arithmetic
                    self.faults.append(f"with inputs of other sizes the refactored fails: {_said(error)}")
                    return
                except (TooMany, Exception):  # noqa: BLE001
                    continue  # a loop over it is too long, a part has a literal size, or the model rejects it
                if (wrong := operations.follows_sizes(own, (mine, theirs))) is not None:
                    self.faults.append(wrong)
                    return
                break

    def _numbers(self, one: Run, other: Run) -> None:
        shapes: list[Shape] = [tuple(t.shape) for t in tensors_in(one.inputs)]

        full_size = one.recorder.done(), other.recorder.done()
        at: dict[tuple[Rule, ...], tuple[RunOps, RunOps]] = {(): full_size}

        def estimate(rules: list[Rule]) -> Cost | None:
            try:
                small, also = (
                    self._trace(self._original, False, rules),
                    self._trace(self._refactored, False, rules),
                )
            except Exception:  # noqa: BLE001  a size at which it does not run is not used
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
                rewired=full_size[0].steps != full_size[1].steps,
            )
            return found, why, faults + found.faults

        full = one.cost().most(other.cost())
        rules, cost = choose(full, shapes, numbers_in(one.inputs), estimate) if self._fake else ([], full)
        found, why, faults = compared(rules, cost)
        if faults and rules:
            # A part with a literal size is right only at the model's own sizes, and the claim is about those.
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
            # Constant outputs prove nothing, so the operations must match.
            self.faults.append(
                f"every output is constant, and the refactored has other operations: {self._other_calls}"
            )
        elif not found.bitwise and (more := full_size[1].signatures - full_size[0].signatures):
            self.faults.append(
                f"the numbers are not the same bit for bit, and the refactored has {min(more)}, too"
            )
        self.result["varied"] = found.varied
        self.result["numerical_comparison"] = found.as_json() | {"train": why or found.train}

    def _train_mode(
        self, one: Run, other: Run, rules: list[Rule], in_eval: RunOps
    ) -> tuple[bool, str | None, list[str]]:
        """Whether to compare train mode as well; if not, why; and faults found so far."""
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
        # Operations that replace in-place writes occur in both modes.
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


def _said(error: BaseException) -> str:
    """The error, with the last line of the claim's own files in its traceback."""
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
