"""The numerical part of a proof: the two sides with the same numbers, three times over. A stranger's modules run here, so use it in a
confined process and nowhere else.

In each trial the original's weights are drawn anew and copied to the refactored by name; each side gets its own copy of the inputs.
The third trial has small inputs and small variances, so that an `eps` or a small constant shows. Where inputs are constant, or
the two sides do not do the same operations in the same order, there is a fourth with inputs that are drawn here. Afterwards outputs, inputs and
weights have to agree: what one side changes in place the other has to change, too.
"""

from __future__ import annotations

import math
import random
import sys
from typing import Any

import torch

from kernelmill.decompose.prove_build import (
    IN_BLOCKS,
    SHARED,
    Original,
    Refactored,
    build_for_numbers,
    held_tensors,
    put,
    registered,
    resolve,
    unless_out_of_memory,
)
from kernelmill.decompose.prove_operations import tensors_in
from kernelmill.decompose.prove_record import Recorder
from kernelmill.decompose.prove_sizes import Cost, Limits, Rule, Shape, reduced_inputs, target
from kernelmill.decompose.prove_values import (
    TOLERANCES,
    Comparison,
    Snapshot,
    State,
    clone,
    draw_floats,
    scale_floats,
    tells_little,
)
from kernelmill.problems.module_file import where

SEEDS = (1729, 2718, 3141)
SMALL_INPUTS = 0.01
_IN_BLOCKS = "large ones of one shape are parts of one block of numbers, each at its own place in it"


class Numbers:
    """What the trials found."""

    def __init__(self, reduced: dict[str, Any] | None, in_blocks: bool) -> None:
        self.reduced = reduced
        self.weights = _IN_BLOCKS if in_blocks else None
        self.trials: list[dict[str, Any]] = []
        self.faults: list[str] = []
        self.error: str | None = None
        self.needs: Limits | None = None
        """Bytes, where there is not so much memory."""
        self.bitwise = True
        self.train = ""
        self.drawn = "not needed (inputs that differ, and the same operations in the same order)"
        self.rtol = 0.0
        self.input_dtype = ""
        self.facts: list[list[float]] = []
        self.finite = 0

    @property
    def constant(self) -> bool:
        """Whether the original gives one number everywhere, in every trial."""
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
        }


def compare_numbers(
    original: Original,
    refactored: Refactored,
    weight_map: dict[str, str],
    shapes: list[Shape],
    rules: list[Rule],
    cost: Cost,
    train: bool,
    limits: Limits,
    drawn: bool,
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
        unless_out_of_memory(error)
        found.error = (
            f"it cannot be built for real: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        )
        return found
    plan = [(seed, "small" if index == 2 else "", False) for index, seed in enumerate(SEEDS)]
    plan += [(SEEDS[0], "drawn", False)]
    for number, (seed, other, training) in enumerate([*plan, *([(SEEDS[0], "", True)] if train else [])], 1):
        _seed(seed)
        given = reduced_inputs(original.inputs, shapes, rules)
        little = other == "small"
        if little:
            scale_floats(given, SMALL_INPUTS)
        elif other == "drawn":
            if not any(tensor.is_floating_point() for tensor in tensors_in(given)):
                found.drawn = "not needed (no input has floats: it would be the first trial again)"
                continue
            if not drawn and not tells_little(given):
                continue
            given = draw_floats(given)
        trial, trouble = pair.trial(given, seed, little, training, record=number == 1)
        if little and trouble is not None and trouble[0] == "original":
            # Small numbers are our idea, and not every model takes them (a search for neighbours that finds none).
            _seed(seed)
            given, little = reduced_inputs(original.inputs, shapes, rules), False
            trial, trouble = pair.trial(given, seed, little, training, record=False)
        mode = "train" if training else "eval"
        if trouble is not None:
            if trouble[0] == "original" and other == "drawn":
                found.drawn = f"not compared (the original does not run with them: {trouble[1]})"
                continue
            if training and trouble[0] == "original":
                found.train = f"not compared (the original does not run in train mode: {trouble[1]})"
                break
            line = f"the {trouble[0]} does not run ({mode} mode, seed {seed}): {trouble[1]}"
            if trouble[0] == "original":
                found.error = line
            else:
                found.faults.append(line)
            break
        found.input_dtype = ", ".join(dict.fromkeys(_name(t.dtype) for t in tensors_in(given)))
        found.rtol = max(found.rtol, trial.tolerance)
        passed = not trial.comparison.faults
        worst = trial.comparison.max_diff
        found.bitwise &= trial.comparison.bitwise
        found.facts.append(trial.comparison.facts)
        found.finite += trial.comparison.finite
        if training:
            found.train = f"{'PASS' if passed else 'FAIL'} (seed {seed})"
        elif other == "drawn":
            found.drawn = f"{'PASS' if passed else 'FAIL'} (seed {seed})"
        else:
            found.trials.append(
                {
                    "trial": number,
                    "seed": seed,
                    "max_diff": worst if math.isfinite(worst) else None,
                    "pass": passed,
                    "input_scale": SMALL_INPUTS if little else 1.0,
                }
            )
        if not passed:
            said = "; ".join(trial.comparison.faults[:3])
            found.faults.append(f"{mode} mode, seed {seed}{f', {other} inputs' if other else ''}: {said}")
    if not found.error and not found.faults and not found.finite:
        found.error = "the original gives no finite number in any trial: nothing was compared"
    return found


class _Trial:
    def __init__(self) -> None:
        self.comparison = Comparison()
        self.tolerance = 0.0


class _Pair:
    """Both sides for real, with weights that are mapped."""

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
        self._shared: list[tuple[str, torch.Tensor]] = []
        parameters = dict(self._refactored.named_parameters(remove_duplicate=False))
        for name, source in weight_map.items():
            mine = resolve(self._original, source)
            if mine is not None and name in parameters and mine.numel() * mine.element_size() > shared:
                put(self._refactored, name, mine)
                self._shared.append((source, mine))
        held = held_tensors(self._refactored).values()
        self._theirs = Snapshot(self._refactored, [t for t in held if not t.is_floating_point()])
        self._both = [
            (name, source)
            for name, source in weight_map.items()
            if name in registered(self._refactored) and source in registered(self._original)
        ]

    def trial(
        self, given: Any, seed: int, little: bool, train: bool, record: bool
    ) -> tuple[_Trial, tuple[str, str] | None]:
        """One trial, or which side does not run and why."""
        self._state.draw(seed, little)
        self._theirs.restore()
        self._original.train(train)
        self._refactored.train(train)
        self._copy()
        versions = [tensor._version for _, tensor in self._shared]
        (args, kwargs), (their_args, their_kwargs) = given, clone(given)
        trial = _Trial()
        _seed(seed)
        try:
            one = self._original(*args, **kwargs)
        except Exception as error:  # noqa: BLE001
            unless_out_of_memory(error)
            return trial, ("original", where(error, "original.py"))
        _seed(seed)
        children = {m: name for name, m in self._refactored.named_children()}
        recorder = Recorder(children)
        try:
            if record:
                with recorder, recorder.following():
                    other = self._refactored(*their_args, **their_kwargs)
            else:
                other = self._refactored(*their_args, **their_kwargs)
        except Exception as error:  # noqa: BLE001
            unless_out_of_memory(error)
            return trial, ("refactored", f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
        compared = trial.comparison
        trial.tolerance = max((TOLERANCES.get(t.dtype, 0.0) for t in tensors_in(one)), default=0.0)
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
        compared.faults += [
            f"{name} is written, and shared"
            for (name, tensor), version in zip(self._shared, versions, strict=True)
            if tensor._version != version
        ]
        return trial, None

    def _copy(self) -> None:
        """The original's numbers, by name."""
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


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
