"""Choose the sizes at which numbers are compared: the model's own if that is cheap, otherwise smaller inputs.

The weights stay the same. A size is reduced wherever it occurs (first only as the leading dimension, usually
the batch), and only if both sides still run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from kernelmill.decompose.nested import leaves
from kernelmill.decompose.prove.operations import tensors_in
from kernelmill.torch_calls.tensors import map_tensors

Shape = tuple[int, ...]
Inputs = tuple[list[Any], dict[str, Any]]
Draw = Callable[[], Inputs]
NUMBER = -1
"""The dimension of a rule for integer inputs: a part may receive a size as an argument."""


class Rule(NamedTuple):
    """One size and its replacement, in one dimension of every input or in all (None)."""

    dimension: int | None
    size: int
    new: int


class Cost(NamedTuple):
    """The cost of one run."""

    elements: int
    """Elements of inputs, outputs and the largest intermediate."""
    flops: int
    written: int
    """Total elements that operations write."""
    weights: int
    """Bytes of parameters, buffers and other tensors of one side."""
    in_blocks: int
    """The same if large tensors of one shape share a block (`prove.build`)."""

    def over(self) -> float:
        """By what factor it exceeds the budget for a run that is repeated for each seed and side."""
        return max(self.elements / ELEMENTS, self.flops / FLOPS, self.written / WRITTEN)

    def most(self, other: Cost) -> Cost:
        return Cost(*map(max, self, other))

    def bytes(self) -> int:
        """A generous memory estimate for both sides.

        Weights may be shared; inputs and outputs exist twice.
        """
        return 4 * 3 * self.elements + (self.in_blocks if self.large() else self.weights)

    def large(self) -> bool:
        """Whether its weights are placed in blocks."""
        return self.weights > MAX_WEIGHTS


ELEMENTS, FLOPS, WRITTEN = 16_000_000, 2_000_000_000, 100_000_000
_STEP = 4
MAX_WEIGHTS = 1 << 30
"""Maximum bytes of weights that get separate memory."""


class Limits(NamedTuple):
    """The limits for a run whose inputs cannot be made smaller."""

    memory: int
    """Bytes."""
    flops: int

    def allow(self, cost: Cost) -> bool:
        return cost.bytes() <= self.memory and cost.flops <= self.flops


def choose(
    cost: Cost, shapes: list[Shape], numbers: list[int], estimate: Callable[[list[Rule]], Cost | None]
) -> tuple[list[Rule], Cost]:
    """Choose rules that make a run cheap, as far as possible.

    `numbers` are the integer inputs. `estimate` returns None if a side does not run with the given rules.
    """
    rules: list[Rule] = []
    firsts = dict.fromkeys(shape[0] for shape in shapes if shape)
    sizes = sorted({size for shape in shapes for size in shape}, reverse=True)
    # The same number may be a model width in one place and a free size in another.
    single = dict.fromkeys((index, size) for shape in shapes for index, size in enumerate(shape) if index)
    for dimension, size in [
        *((0, size) for size in firsts),
        *((None, size) for size in sizes),
        *single,
        *((NUMBER, number) for number in dict.fromkeys(numbers)),
    ]:
        if cost.over() <= 1:
            break
        ratio = cost.over()
        while (new := _smaller(size, ratio)) < size:
            tried = [*rules, Rule(dimension, size, new)]
            if dimension == NUMBER:  # `x.view(batch, length, -1)` of a tensor with batch * length rows
                tried += [Rule(0, rows, rows // size * new) for rows in firsts if rows % size == 0]
            found = estimate(tried)
            if found is not None and found.over() < cost.over():
                rules, cost = tried, found
                break
            ratio = min(ratio, size / 2) / _STEP  # too small, for example for a kernel's window
    return rules, cost


def _smaller(size: int, ratio: float) -> int:
    """A smaller size, at least 2, and a divisor of `size` if one is near.

    A batch of one would hide mixed-up elements, and sizes are often split into equal parts.
    """
    wanted = max(2, int(size / ratio))
    divisors = [n for n in range(max(2, wanted // 2), wanted + 1) if size % n == 0]
    return divisors[-1] if divisors else wanted


def target(shape: Iterable[int], rules: list[Rule]) -> Shape:
    found = list(shape)
    for rule in rules:
        for index, size in enumerate(found):
            if size == rule.size and rule.dimension in (None, index):
                found[index] = rule.new
    return tuple(found)


def narrowed(value: Any, rules: list[Rule]) -> Any:
    """Copies of tensors cut to their target shapes; integers replaced by rule; everything else unchanged."""

    def cut(tensor: torch.Tensor) -> torch.Tensor:
        wanted = target(tensor.shape, rules)
        if wanted == tuple(tensor.shape):
            return tensor
        for dimension, size in enumerate(wanted):
            tensor = tensor.narrow(dimension, 0, size)
        return tensor.clone(memory_format=torch.contiguous_format)

    def replaced(other: Any) -> Any:
        if type(other) is not int:
            return other
        return next((rule.new for rule in rules if rule.dimension == NUMBER and rule.size == other), other)

    return map_tensors(value, cut, replaced)


def enlarged(value: Any, rule: Rule | None) -> Any:
    """Fake tensors with another size in one dimension; everything else unchanged."""

    def grown(tensor: torch.Tensor) -> torch.Tensor:
        wanted = target(tensor.shape, [rule] if rule else [])
        return tensor if wanted == tuple(tensor.shape) else tensor.new_empty(wanted)

    return value if rule is None else map_tensors(value, grown)


class _Smaller(TorchFunctionMode):  # type: ignore[misc]
    """Makes `get_inputs` draw tensors at their target shapes: at full size they may take gigabytes."""

    def __init__(self, shapes: dict[Shape, Shape]) -> None:
        super().__init__()
        self._shapes = shapes

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func in _DRAWS:
            if "size" in kwargs:
                kwargs["size"] = self._shapes.get(tuple(kwargs["size"]), kwargs["size"])
            elif args and all(isinstance(a, int) for a in args) and func in _FLAT:
                args = self._shapes.get(args, args)
            else:
                args = tuple(
                    self._shapes.get(tuple(a), tuple(a)) if isinstance(a, list | tuple) else a for a in args
                )
        return func(*args, **kwargs)


_FLAT = {torch.rand, torch.randn, torch.zeros, torch.ones, torch.empty}
_DRAWS = {*_FLAT, torch.randint, torch.full}


def reduced_inputs(draw: Draw, shapes: list[Shape], rules: list[Rule]) -> Inputs:
    """What `draw` returns, at the target shapes. `shapes` are the full-size shapes of its tensors."""
    if not rules:
        return draw()
    made = _drawn_at(draw, {shape: target(shape, rules) for shape in shapes}, shapes)
    if made is not None:
        return narrowed(made, [rule for rule in rules if rule.dimension == NUMBER])  # type: ignore[no-any-return]
    return narrowed(draw(), rules)  # type: ignore[no-any-return]


def _drawn_at(draw: Draw, small: dict[Shape, Shape], shapes: list[Shape]) -> Inputs | None:
    """What `draw` returns if its tensors get smaller shapes; None if they do not all get them."""
    try:
        with _Smaller(small):
            made = draw()
    except RuntimeError:
        return None  # it combines tensors that were not all made smaller
    return made if [tuple(t.shape) for t in tensors_in(made)] == [small[shape] for shape in shapes] else None


_SAMPLE, _MOST = 4096, 1 << 26


def drawn_small(draw: Draw, shapes: list[Shape]) -> Inputs | None:
    """A sample of the numbers that `draw` returns.

    At smaller shapes if it can draw them, otherwise all of them; None if those are too many.
    """
    small: dict[Shape, Shape] = {}
    for shape in shapes:
        most = int(_SAMPLE ** (1 / len(shape))) if shape else 1
        small[shape] = tuple(min(size, most) for size in shape)
    try:
        made = _drawn_at(draw, small, shapes)
    except (IndexError, ValueError):
        made = None  # it uses sizes that the smaller tensors do not have
    if made is None and sum(map(math.prod, shapes)) <= _MOST:
        made = draw()
    return made


def numbers_in(value: Any) -> list[int]:
    """Integers inside tuples, lists and dicts."""
    return [leaf for leaf in leaves(value) if type(leaf) is int]


def elements_of(value: Any) -> int:
    return sum(math.prod(tensor.shape) for tensor in tensors_in(value))
