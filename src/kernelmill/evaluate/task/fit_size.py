"""Try versions of a source until one runs within limits: `pick`, and `pick_other` for another shape.

A new tensor that is too large is rejected before it is allocated. A large result of an operation on small
tensors is seen only afterwards, and stops the run then. Time is checked between operations. An operation that
never ends is left to the process's own timeout.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernelmill.evaluate.task.answers import distance_of
from kernelmill.evaluate.task.reference import BadReference, NotInstalled, Reference, load_reference
from kernelmill.evaluate.task.shrink import Shrunk, one_at_a_time, other_shapes, shrunk
from kernelmill.torch_calls.recorder import flops_of
from kernelmill.torch_calls.tensors import tensors_in


@dataclass(frozen=True)
class SizeLimits:
    """Limits of one run.

    `elements` of inputs, parameters, buffers and outputs; `flops` in products; `seconds` of processor time.

    The defaults are what PyTorch runs in milliseconds.
    """

    elements: int = 1 << 16
    flops: int = 1 << 22
    seconds: float = 2.0


SMALL = SizeLimits()
INTERPRETER = SizeLimits(1 << 19, 1 << 25)
"""What the interpreter, and the judge beside it, handle some fifty times in a second or two."""
TINY = SizeLimits(1 << 13, 1 << 19)
ROOMY = SizeLimits(1 << 20, 1 << 26)
"""Minimum limits for another shape of the picked version."""
CEILING = SizeLimits(1 << 24, 1 << 32, 5.0)
"""Limits for problems that cannot be made small: a network's weights do not shrink with its inputs."""


ROUGH = 0.01
"""If more than this share of a result is rounding error, it cannot tell right from wrong."""


class _Over(Exception):
    """A limit is exceeded. `passing` marks a limit that also depends on the machine's load."""

    def __init__(self, words: str, passing: bool = False) -> None:
        super().__init__(words)
        self.passing = passing


@dataclass
class Size:
    """What a run used.

    `elements` of inputs, parameters, buffers and outputs; `largest` intermediate tensor.
    """

    elements: int
    largest: int
    flops: int
    seconds: float
    distance: float
    """Relative distance between the eager and the float64 result."""


@dataclass
class Picked:
    reference: Reference
    version: Shrunk
    size: Size
    refused: list[str]
    """Why earlier versions were rejected, one line each."""


@dataclass
class _Tries:
    """The versions that were rejected."""

    refused: list[str] = field(default_factory=list)
    rough: list[Picked] = field(default_factory=list)
    passing: bool = False
    """One of them failed for a transient reason, and might be accepted another time."""


def pick(
    code: str,
    entry_point: str | None,
    limits: SizeLimits = SMALL,
    ceiling: SizeLimits = CEILING,
    seed: int = 0,
) -> Picked:
    """Pick the first version of the source that loads, runs within the limits and is well conditioned.

    The original comes first. If no version fits, pick the smallest that stays under `ceiling`; `size` says
    how large it is. A version whose result has too much rounding error (a normalisation over two numbers, as
    small sizes may make it) is used only if there is no other.
    """
    try:
        versions = shrunk(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # the last two: nested too deeply
        raise BadReference(f"it is no Python: {type(error).__name__}: {error}") from error
    tries = _Tries()
    found = _first(versions, entry_point, limits, seed, tries)
    if found is None:
        versions.sort(key=lambda v: sum(new - old for old, new in v.changes.values()))
        found = _first(versions, entry_point, ceiling, seed, tries)
    if found is None and not tries.rough:
        raise BadReference(f"no version runs within the limits: {tries.refused[0]}", tries.passing)
    return found or tries.rough[0]


def room_for(size: Size) -> SizeLimits:
    """Limits for another shape of the picked version: four times what it uses, and at least `ROOMY`."""
    return SizeLimits(
        max(ROOMY.elements, 4 * size.elements), max(ROOMY.flops, 4 * size.flops), CEILING.seconds
    )


def pick_other(
    code: str, entry_point: str | None, limits: SizeLimits = ROOMY, same_model: bool = True, seed: int = 0
) -> Picked | None:
    """Pick a version with other sizes that runs.

    With `same_model` only sizes of the inputs change, otherwise the constructor's arguments too. `code` is
    what `pick` returned (`version.text`): the original of a large problem has no other shape within the
    limits.
    """
    versions = [version for version in other_shapes(code) if version.same_model == same_model]
    return _first(versions, entry_point, limits, seed, _Tries())


def pick_each(
    code: str, entry_point: str | None, limits: SizeLimits = ROOMY, most: int = 6, seed: int = 0
) -> list[Picked]:
    """Pick up to `most` versions that run with one size changed, each another size."""
    found: list[Picked] = []
    done: set[str] = set()
    for version in one_at_a_time(code):
        if len(found) == most or done & set(version.changes):
            continue
        picked = _first([version], entry_point, limits, seed, _Tries())
        if picked is not None:
            found.append(picked)
            done |= set(version.changes)
    return found


def _first(
    versions: list[Shrunk], entry_point: str | None, limits: SizeLimits, seed: int, tries: _Tries
) -> Picked | None:
    for version in versions:
        try:
            reference, size = tried(version.text, entry_point, limits, seed)
        except NotInstalled:
            raise
        except (BadReference, _Over) as error:
            tries.refused.append(f"{version.kind}: {error}")
            tries.passing |= error.passing
            continue
        picked = Picked(reference, version, size, tries.refused)
        if size.distance <= ROUGH:
            return picked
        tries.refused.append(f"{version.kind}: eager is {size.distance:.1e} away from float64")
        tries.rough.append(picked)
    return None


def tried(code: str, entry_point: str | None, limits: SizeLimits, seed: int) -> tuple[Reference, Size]:
    """Load and run a source once. Raise `BadReference`, or `_Over` if it exceeds a limit."""
    guard = _Guard(limits)
    try:
        with guard:
            reference = load_reference(code, entry_point)
            model, call = reference.new(seed), reference.inputs(seed)
            guard.count([*call.tensors(), *model.parameters(), *model.buffers()])
            outputs = reference.run(model, call, seed)
            guard.count(outputs.leaves)
    except BadReference as error:
        if guard.over:
            raise _Over(guard.over, guard.late) from error
        raise
    except MemoryError as error:
        raise _Over("out of memory", passing=True) from error
    seconds, distance = guard.seconds(), distance_of(reference.answer(model, call, seed))
    return reference, Size(guard.elements, guard.largest, guard.flops, seconds, distance)


class _Guard(TorchDispatchMode):  # type: ignore[misc]
    def __init__(self, limits: SizeLimits) -> None:
        super().__init__()
        self.over = ""
        self.late = False
        self.elements = self.largest = self.flops = 0
        self._limits = limits
        self._start = time.process_time()

    def seconds(self) -> float:
        return time.process_time() - self._start

    def count(self, tensors: list[torch.Tensor]) -> None:
        self.elements += sum(t.numel() for t in tensors if not torch.nn.parameter.is_lazy(t))
        self._check(self.elements, self._limits.elements, "elements of inputs, parameters and outputs")

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        size = kwargs.get("size", args[0] if args else None)
        if isinstance(size, list | tuple) and all(isinstance(n, int) for n in size):
            self._check(math.prod(size), self._limits.elements, "elements of a new tensor")
        output = func(*args, **kwargs)
        self.largest = max([self.largest, *(tensor.numel() for tensor in tensors_in(output))])
        self.flops += flops_of(func, args, kwargs, output) or 0
        self._check(self.largest, 4 * self._limits.elements, "elements of an intermediate tensor")
        self._check(self.flops, self._limits.flops, "operations in products")
        seconds = self.seconds()
        self.late = seconds > self._limits.seconds
        self._check(seconds, self._limits.seconds, "seconds")
        return output

    def _check(self, found: float, limit: float, what: str) -> None:
        if found > limit:
            self.over = f"{found:.3g} {what}, the limit is {limit:.3g}"
            raise _Over(self.over)
