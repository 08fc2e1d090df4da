"""At which sizes numbers are compared: the model's own where that is cheap, otherwise smaller inputs to the same weights.

A size is made smaller wherever it stands (first as the leading dimension alone, where a batch is), and only if both sides still run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from kernelmill.decompose.prove.operations import tensors_in

Shape = tuple[int, ...]


NUMBER = -1
"""The dimension of a rule for inputs that are whole numbers: a part may be given a size."""


class Rule(NamedTuple):
    """One size and what it becomes: in one dimension of every input, or in all (None)."""

    dimension: int | None
    size: int
    new: int


class Cost(NamedTuple):
    """Of one run."""

    elements: int
    """Of inputs, outputs and the largest intermediate."""
    flops: int
    written: int
    """Elements that operations write, all together."""
    weights: int
    """Bytes of parameters, buffers and other tensors of one side."""
    in_blocks: int
    """The same where large ones of one shape share a block (`prove_build`)."""

    def over(self) -> float:
        """How many times too dear it is for a run that is made for each seed and side."""
        return max(self.elements / ELEMENTS, self.flops / FLOPS, self.written / WRITTEN)

    def most(self, other: Cost) -> Cost:
        return Cost(*map(max, self, other))

    def bytes(self) -> int:
        """Of memory for both sides, generously: weights may be shared (`prove_worker`), inputs and outputs are there twice."""
        return 4 * 3 * self.elements + (self.in_blocks if self.large() else self.weights)

    def large(self) -> bool:
        """Whether its weights are put into blocks."""
        return self.weights > MAX_WEIGHTS


ELEMENTS, FLOPS, WRITTEN = 16_000_000, 2_000_000_000, 100_000_000
_STEP = 4
MAX_WEIGHTS = 1 << 30
"""The most bytes of weights that have memory of their own each."""


class Limits(NamedTuple):
    """The most that a run whose inputs cannot be made smaller may take."""

    memory: int
    """Bytes."""
    flops: int

    def allow(self, cost: Cost) -> bool:
        return cost.bytes() <= self.memory and cost.flops <= self.flops


def choose(
    cost: Cost, shapes: list[Shape], numbers: list[int], estimate: Callable[[list[Rule]], Cost | None]
) -> tuple[list[Rule], Cost]:
    """Rules that make a run cheap, as far as there are any. `numbers` are the inputs that are whole numbers. `estimate` gives None
    where a side does not run with some rules."""
    rules: list[Rule] = []
    firsts = dict.fromkeys(shape[0] for shape in shapes if shape)
    sizes = sorted({size for shape in shapes for size in shape}, reverse=True)
    # A number may be a width of the model in one place and a free size in another.
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
            if dimension == NUMBER:  # `x.view(batch, length, -1)` of what has batch * length rows
                tried += [Rule(0, rows, rows // size * new) for rows in firsts if rows % size == 0]
            found = estimate(tried)
            if found is not None and found.over() < cost.over():
                rules, cost = tried, found
                break
            ratio = min(ratio, size / 2) / _STEP  # too small for a kernel's window, say
    return rules, cost


def _smaller(size: int, ratio: float) -> int:
    """At least 2: a batch of one would not show what is mixed up in it. A divisor, where one is near: sizes are often cut into parts."""
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
    """Tensors cut to their target shapes, copied, and whole numbers that have a rule; everything else as it is."""
    if type(value) is int:
        return next((rule.new for rule in rules if rule.dimension == NUMBER and rule.size == value), value)
    if isinstance(value, torch.Tensor):
        wanted = target(value.shape, rules)
        if wanted == tuple(value.shape):
            return value
        for dimension, size in enumerate(wanted):
            value = value.narrow(dimension, 0, size)
        return value.clone(memory_format=torch.contiguous_format)
    if isinstance(value, dict):
        return {key: narrowed(item, rules) for key, item in value.items()}
    if isinstance(value, list):
        return [narrowed(item, rules) for item in value]
    if isinstance(value, tuple):
        items = [narrowed(item, rules) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value


def enlarged(value: Any, rule: Rule | None) -> Any:
    """Fake tensors with another size in one dimension; everything else as it is."""
    if rule is None:
        return value
    if isinstance(value, torch.Tensor):
        wanted = target(value.shape, [rule])
        return value if wanted == tuple(value.shape) else value.new_empty(wanted)
    if isinstance(value, dict):
        return {key: enlarged(item, rule) for key, item in value.items()}
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return type(value)(enlarged(item, rule) for item in value)
    return value


class _Smaller(TorchFunctionMode):  # type: ignore[misc]
    """Has `get_inputs` draw tensors at their target shapes: at their own they may take gigabytes."""

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


def reduced_inputs(
    draw: Callable[[], tuple[list[Any], dict[str, Any]]], shapes: list[Shape], rules: list[Rule]
) -> tuple[list[Any], dict[str, Any]]:
    """What `draw` gives, at the target shapes. `shapes` are those of its tensors at full size."""
    if not rules:
        return draw()
    wanted = [target(shape, rules) for shape in shapes]
    try:
        with _Smaller(dict(zip(shapes, wanted, strict=True))):
            made = draw()
    except RuntimeError:  # it puts tensors together that were not all made smaller
        made = [], {}
    if [tuple(t.shape) for t in tensors_in(made)] == wanted:
        return narrowed(made, [rule for rule in rules if rule.dimension == NUMBER])  # type: ignore[no-any-return]
    del made
    return narrowed(draw(), rules)  # type: ignore[no-any-return]


_SAMPLE, _MOST = 4096, 1 << 26


def drawn_small(
    draw: Callable[[], tuple[list[Any], dict[str, Any]]], shapes: list[Shape]
) -> tuple[list[Any], dict[str, Any]] | None:
    """Some of the numbers that `draw` gives: at smaller shapes where it can draw so, else all of them; None where those are too many."""
    small: dict[Shape, Shape] = {}
    for shape in shapes:
        most = int(_SAMPLE ** (1 / len(shape))) if shape else 1
        small[shape] = tuple(min(size, most) for size in shape)
    try:
        with _Smaller(small):
            made = draw()
        if [tuple(t.shape) for t in tensors_in(made)] == [small[shape] for shape in shapes]:
            return made
    except (RuntimeError, IndexError, ValueError):
        pass  # it puts tensors together that were not all made smaller
    return draw() if sum(map(math.prod, shapes)) <= _MOST else None


def numbers_in(value: Any) -> list[int]:
    """Whole numbers inside tuples, lists and dicts."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [number for item in value for number in numbers_in(item)]
    return [value] if type(value) is int else []


def elements_of(value: Any) -> int:
    return sum(math.prod(tensor.shape) for tensor in tensors_in(value))
