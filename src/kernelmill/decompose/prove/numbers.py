"""The numerical part of a proof: run both sides on the same numbers, in up to six trials.

In each trial the original's weights are redrawn and copied to the refactored side by name; each side gets its
own copy of the inputs. The third trial uses small inputs and small variances, so that a wrong `eps` or small
constant shows. If inputs are constant, or the two sides do not perform the same operations in the same order,
a fourth trial draws its own inputs; in the latter case a fifth uses large inputs. A last trial is in train
mode, if that changes what the model computes. Afterwards outputs, inputs and weights must agree: what one side changes
in place, the other must change too.

This runs untrusted modules: use it only in a sandboxed process.
"""

from __future__ import annotations

import math
import random
import sys
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch

from kernelmill.decompose.prove.build import (
    IN_BLOCKS,
    SHARED,
    Original,
    Refactored,
    build_for_numbers,
    held_tensors,
    put,
    registered,
    reraise_if_out_of_memory,
    resolve,
)
from kernelmill.decompose.prove.op_recorder import ClaimOpRecorder
from kernelmill.decompose.prove.operations import tensors_in
from kernelmill.decompose.prove.sizes import WRITTEN, Cost, Draw, Limits, Rule, Shape, reduced_inputs, target
from kernelmill.decompose.prove.values import (
    TOLERANCES,
    Comparison,
    Snapshot,
    State,
    clone,
    draw_floats,
    scale_floats,
    tells_little,
)
from kernelmill.decompose.record.caches import clear_caches
from kernelmill.problems.module_file import where
from kernelmill.torch_calls.tensors import dtype_of

SEEDS = (1729, 2718, 3141)
SCALES = {"small": 0.01, "large": 100.0}
_IN_BLOCKS = "large ones of one shape are parts of one block of numbers, each at its own place in it"


class Numbers:
    """The results of all trials."""

    def __init__(self, reduced: dict[str, Any] | None, in_blocks: bool) -> None:
        self.reduced = reduced
        self.weights = _IN_BLOCKS if in_blocks else None
        self.trials: list[dict[str, Any]] = []
        self.faults: list[str] = []
        self.error: str | None = None
        self.needs: Limits | None = None
        """The memory and FLOPs required, if they exceed the limits."""
        self.bitwise = True
        self.train = ""
        self.drawn = "not needed (inputs that differ, and the same operations in the same order)"
        self.large = "not needed (the same operations in the same order)"
        self.rtol = 0.0
        self.input_dtype = ""
        self.facts: list[list[float]] = []
        self.finite = 0
        self.varied: dict[str, list[bool]] = {}
        """For each child, whether each tensor it received held more than one distinct number."""

    def note(self, plan: TrialSettings, compared: Comparison) -> None:
        passed, worst = not compared.faults, compared.max_diff
        self.rtol = max(self.rtol, compared.tolerance)
        self.bitwise &= compared.bitwise
        self.finite += compared.finite
        said = f"{'PASS' if passed else 'FAIL'} (seed {plan.seed})"
        if plan.inputs != "large":  # large inputs may produce only infinities
            self.facts.append(compared.facts)
        if plan.train:
            self.train = said
        elif plan.inputs == "drawn":
            self.drawn = said
        elif plan.inputs == "large":
            self.large = said
        else:
            self.trials.append(
                {
                    "trial": len(self.trials) + 1,
                    "seed": plan.seed,
                    "max_diff": worst if math.isfinite(worst) else None,
                    "pass": passed,
                    "input_scale": SCALES.get(plan.inputs, 1.0),
                    "gradients": plan.gradients,
                }
            )
        if not passed:
            self.faults.append(f"{plan}: {'; '.join(compared.faults[:3])}")

    @property
    def constant(self) -> bool:
        """Whether the original's outputs are one constant number, the same in every trial."""
        return all(facts == self.facts[0] for facts in self.facts) and all(
            low == high for facts in self.facts for low, high in zip(facts[::2], facts[1::2], strict=True)
        )

    def as_json(self) -> dict[str, Any]:
        worst = [t["max_diff"] for t in self.trials]
        return {
            "status": "ERROR" if self.error else "FAIL" if self.faults else "PASS",
            "rtol": self.rtol,
            "atol": 0.0,
            "input_dtype": self.input_dtype,
            "num_trials": len(self.trials),
            "max_diff_across_trials": None if None in worst else max(worst, default=None),
            "trials": self.trials,
            "bitwise_equal": self.bitwise and not self.error,
            "reduced": self.reduced,
            "weights": self.weights,
            "drawn_inputs": self.drawn,
            "large_inputs": self.large,
        }


class TrialSettings(NamedTuple):
    """The settings of one trial."""

    seed: int
    inputs: str = ""
    """`small`, `large` or `drawn`; empty for what `get_inputs` returns."""
    train: bool = False
    gradients: bool = False
    """Whether autograd records the run, as in training."""

    def __str__(self) -> str:
        said = [f"{'train' if self.train else 'eval'} mode, seed {self.seed}"]
        said += [f"{self.inputs} inputs"] if self.inputs else []
        return ", ".join([*said, *(["gradients on"] if self.gradients else [])])


def _plans(train: bool, rewired: bool, cost: Cost) -> list[TrialSettings]:
    """The trials to run.

    `rewired`: the sides do not perform the same operations in the same order, so other inputs may expose
    differences.
    """
    first, second, third = SEEDS
    affordable = (
        cost.written <= WRITTEN // 4 and not cost.large()
    )  # autograd keeps everything that is written
    plans = [
        TrialSettings(first),
        TrialSettings(second, gradients=affordable),
        TrialSettings(third, "small"),
        TrialSettings(first, "drawn"),
    ]
    plans += [TrialSettings(second, "large")] if rewired else []
    return [*plans, *([TrialSettings(first, train=True)] if train else [])]


def compare_numbers(
    original: Original,
    refactored: Refactored,
    weight_map: dict[str, str],
    shapes: list[Shape],
    rules: list[Rule],
    cost: Cost,
    train: bool,
    limits: Limits,
    rewired: bool,
) -> Numbers:
    small = [list(target(shape, rules)) for shape in shapes]
    reduced = {"from": [list(s) for s in shapes], "to": small} if rules else None
    found = Numbers(reduced, cost.large())
    if not limits.allow(cost):
        need = f"about {cost.bytes() / 2**30:.1f} GiB and {cost.flops / 1e9:.0f} GFLOP a run"
        found.error = f"numbers do not fit, at the smallest inputs that both sides take: {need}"
        found.needs = Limits(cost.bytes(), cost.flops)
        return found
    try:
        pair = _Pair(original, refactored, weight_map, cost.large())
    except Exception as error:  # noqa: BLE001
        reraise_if_out_of_memory(error)
        found.error = (
            f"it cannot be built for real: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        )
        return found
    for plan in _plans(train, rewired, cost):
        if not _tried(pair, plan, lambda: reduced_inputs(original.inputs, shapes, rules), rewired, found):
            break
    if not found.error and not found.faults and not found.finite:
        found.error = "the original gives no finite number in any trial: nothing was compared"
    found.varied = pair.varied
    return found


def _tried(pair: _Pair, plan: TrialSettings, draw: Draw, rewired: bool, found: Numbers) -> bool:
    """Run one trial and record its result. Returns whether further trials are useful."""
    _seed(plan.seed)
    given = draw()
    if plan.inputs == "drawn":
        if not any(tensor.is_floating_point() for tensor in tensors_in(given)):
            found.drawn = "not needed (no input has floats: it would be the first trial again)"
            return True
        if not rewired and not tells_little(given):
            return True
        given = draw_floats(given)
    elif plan.inputs:
        scale_floats(given, SCALES[plan.inputs])
    first = plan == TrialSettings(SEEDS[0])
    compared, trouble = pair.trial(given, plan, record=first)
    if trouble is not None and trouble[0] == "original" and (plan.inputs == "small" or plan.gradients):
        # Small inputs and gradients are our choice, and not every model accepts them (a neighbour search that
        # finds none, a weight that is written in place). Fall back to plain inputs.
        _seed(plan.seed)
        given, plan = draw(), TrialSettings(plan.seed)
        compared, trouble = pair.trial(given, plan, record=False)
    if trouble is not None:
        return _troubled(plan, trouble, found)
    found.input_dtype = ", ".join(dict.fromkeys(dtype_of(t) for t in tensors_in(given)))
    found.note(plan, compared)
    return True


def _troubled(plan: TrialSettings, trouble: tuple[str, str], found: Numbers) -> bool:
    side, why = trouble
    if side == "original" and plan.inputs == "large":
        return True
    if side == "original" and plan.inputs == "drawn":
        found.drawn = f"not compared (the original does not run with them: {why})"
        return True
    if side == "original" and plan.train:
        found.train = f"not compared (the original does not run in train mode: {why})"
        return False
    line = f"the {side} does not run ({plan}): {why}"
    if side == "original":
        found.error = line
    else:
        found.faults.append(line)
    return False


class _Pair:
    """Both sides with real memory and mapped weights."""

    def __init__(
        self, original: Original, refactored: Refactored, weight_map: dict[str, str], in_blocks: bool
    ) -> None:
        torch.manual_seed(0)
        random.seed(0)
        self._original = build_for_numbers(original, in_blocks)
        self._refactored = build_for_numbers(refactored, in_blocks)
        shared = IN_BLOCKS if in_blocks else SHARED
        self._state = State(self._original)
        self._map = weight_map
        self.varied: dict[str, list[bool]] = {}
        self._shared: list[tuple[str, torch.Tensor]] = []
        parameters = dict(self._refactored.named_parameters(remove_duplicate=False))
        for name, source in weight_map.items():
            mine = resolve(self._original, source)
            if mine is not None and name in parameters and mine.numel() * mine.element_size() > shared:
                put(self._refactored, name, mine)
                self._shared.append((source, mine))
        # Mapped tensors get the original's numbers before each run, and are compared with them afterwards.
        mapped = {id(resolve(self._refactored, name)) for name in weight_map}
        own = [t for t in held_tensors(self._refactored).values() if id(t) not in mapped]
        self._theirs = Snapshot(self._refactored, [t for t in own if not t.is_floating_point()])
        sources, names = registered(self._original), registered(self._refactored)
        self._both = [(name, of) for name, of in weight_map.items() if name in names and of in sources]

    def trial(
        self, given: Any, plan: TrialSettings, record: bool
    ) -> tuple[Comparison, tuple[str, str] | None]:
        """Run one trial. If a side does not run, return which one and why."""
        clear_caches()
        self._state.draw(plan.seed, plan.inputs == "small")
        self._theirs.restore()
        self._original.train(plan.train)
        self._refactored.train(plan.train)
        self._copy()
        versions = [tensor._version for _, tensor in self._shared]
        (args, kwargs), (their_args, their_kwargs) = given, clone(given)
        compared = Comparison()
        _seed(plan.seed)
        try:
            with torch.set_grad_enabled(plan.gradients):
                one = self._original(*args, **kwargs)
        except Exception as error:  # noqa: BLE001
            reraise_if_out_of_memory(error)
            return compared, ("original", where(error, "original.py"))
        _seed(plan.seed)
        children = {m: name for name, m in self._refactored.named_children()}
        recorder = ClaimOpRecorder(children)
        try:
            with torch.set_grad_enabled(plan.gradients), recorder.seeing() if record else nullcontext():
                other = self._refactored(*their_args, **their_kwargs)
        except Exception as error:  # noqa: BLE001
            reraise_if_out_of_memory(error)
            return compared, ("refactored", f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
        if record:
            self.varied = recorder.varied
        compared.tolerance = max((TOLERANCES.get(t.dtype, 0.0) for t in tensors_in(one)), default=0.0)
        compared.faults += [
            f"the parent computes: {op} x{n}" for op, n in (recorder.outside + recorder.outside_views).items()
        ]
        compared.add("output", one, other)
        facts, finite = list(compared.facts), compared.finite
        compared.add("input", (args, kwargs), (their_args, their_kwargs))
        for name, source in self._both:
            mine, theirs = resolve(self._original, source), resolve(self._refactored, name)
            if mine is not theirs:
                compared.add(f"{source} after the run", mine, theirs)
        compared.facts, compared.finite = facts, finite
        if not plan.train and self._theirs.is_changed():
            compared.faults.append("the refactored has state of its own that a run changes")
        compared.faults += [
            f"{name} is written, and shared"
            for (name, tensor), version in zip(self._shared, versions, strict=True)
            if tensor._version != version
        ]
        return compared, None

    def _copy(self) -> None:
        """Copy the original's numbers to the refactored side, by name."""
        for name, source in self._map.items():
            mine, theirs = resolve(self._original, source), resolve(self._refactored, name)
            assert mine is not None, "the map was checked on tensors without memory"
            assert theirs is not None, "the map was checked on tensors without memory"
            if theirs.data_ptr() != mine.data_ptr():
                theirs.detach().copy_(mine.detach())


def _seed(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed)
