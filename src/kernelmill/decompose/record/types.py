"""The data types of a recorded run: calls in order, inside the modules that made them.

A call is what the author wrote (`F.softmax(x, dim=-1)`, `x + y`, a whole `nn.Linear`), never what torch
lowers it to. Values are immutable: a call that writes into a tensor creates a new value. Sizes read from a
tensor remember it (`Int`), so that `x.view(x.shape[0], -1)` is not emitted as `x.view(16, -1)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from kernelmill.decompose.nested import leaves
from kernelmill.decompose.record.variables import SourcePosition

CaptureMode = Literal["fake", "real constructor", "real"]
"""Everything fake; a real constructor and a fake run; everything real. Stored as `capture.road` in the tree."""
Tree = Any
"""Lists, tuples, dicts and slices of `Value`, `Int`, `Float` and constants."""


class _Training:
    def __repr__(self) -> str:
        return "self.training"


TRAINING = _Training()
"""Placeholder in a call's arguments for `self.training`."""


@dataclass(eq=False)
class Value:
    """A tensor, or a number passed to the model (`input`) or to a part of it (`literal`)."""

    kind: Literal["input", "weight", "result", "literal"]
    name: str
    """For an input its name, for a weight its path in the model, for a result the call that made it."""
    shape: tuple[int, ...] | None
    """None for a number."""
    dtype: str
    op: Op | None = field(default=None, repr=False)
    variable: str = ""
    """The author's name for it, if known."""
    example: Any = None
    """A number's value; None for a tensor, whose known values are in `seen`."""
    seen: str | None = None
    """An expression for integers that are the same in every run, or that an opaque module received."""


@dataclass(frozen=True)
class Written:
    """The source text and class of an object that a module is created with (a configuration, an enum)."""

    text: str
    needs: str


@dataclass(eq=False)
class Op:
    index: int
    name: str
    """`torch.nn.functional.softmax`, `torch.Tensor.view`, `torch.nn.Linear`."""
    args: tuple[Tree, ...]
    kwargs: dict[str, Tree]
    scope: Scope
    line: int | None
    output: Tree = None
    module: Leaf | None = None
    position: SourcePosition | None = None
    """The location of the call in the author's file."""

    @property
    def short(self) -> str:
        return (
            self.name.rpartition(".")[2] if not self.name.endswith(".__get__") else self.name.split(".")[-2]
        )

    def inputs(self) -> list[Value]:
        """The tensors and numbers it reads, including weights, each once.

        Reading only a size does not count.
        """
        return list(dict.fromkeys(values_of((self.args, self.kwargs))))

    def outputs(self) -> list[Value]:
        return [value for value in values_of(self.output) if value.op is self]


@dataclass(eq=False)
class Leaf:
    """A torch layer: its location, and how to create it again."""

    path: str
    kind: str
    """`Linear`"""
    required: dict[str, Any]
    options: dict[str, Any]
    """Arguments that differ from their defaults."""
    weights: dict[str, Value]
    """Keyed by name in the layer."""
    dtype: str | None = None
    """Dtype of its parameters, if not float32."""
    opaque_reason: str | None = None
    """Why it is an opaque module of the author's (see `record.keep_whole`); None for a torch layer."""


@dataclass(eq=False)
class Scope:
    """One call of a module that is not a torch layer."""

    path: str
    kind: str
    """Its class."""
    parent: Scope | None
    items: list[Op | Scope] = field(default_factory=list)
    args: dict[str, Tree] = field(default_factory=dict)
    """Keyed by parameter name of `forward`."""
    output: Tree = None
    own: bool = True
    """Whether its class is the author's, not a torch container."""

    def ops(self) -> Iterator[Op]:
        for item in self.items:
            if isinstance(item, Op):
                yield item
            else:
                yield from item.ops()


@dataclass(eq=False)
class Record:
    root: Scope
    inputs: list[Value]
    mode: CaptureMode
    weights: dict[str, Value]
    parameters: set[str]
    """Paths of the weights that are parameters; the others are buffers or plain tensors."""
    notes: list[str] = field(default_factory=list)
    """Which capture modes failed, and which modules are kept whole."""


def values_of(tree: Tree) -> Iterator[Value]:
    """The values in it, also those that numbers are computed from; not those of which only a size is read."""
    for leaf in leaves(tree):
        if isinstance(leaf, Value):
            yield leaf
        elif isinstance(leaf, Int | Float) and leaf.expression[0] != "size":
            yield from values_of(leaf.expression[1:])


def sized_values(tree: Tree) -> Iterator[Value]:
    """The values of which a size is read."""
    for leaf in leaves(tree):
        if isinstance(leaf, Int | Float):
            kind, *parts = leaf.expression
            yield from [parts[0]] if kind == "size" else sized_values(parts)


# --------------------------------------------------------------------------- numbers that know their origin


class _Number:
    """An expression: ("size", value, axis), ("given", value), or (operator, left, right)."""

    expression: tuple[Any, ...]


class Int(int, _Number):
    def __new__(cls, value: int, expression: tuple[Any, ...]) -> Int:
        made = super().__new__(cls, value)
        made.expression = expression
        return made

    def __repr__(self) -> str:
        return int.__repr__(self)


class Float(float, _Number):
    def __new__(cls, value: float, expression: tuple[Any, ...]) -> Float:
        made = super().__new__(cls, value)
        made.expression = expression
        return made


def tracked(value: Any, expression: tuple[Any, ...]) -> Any:
    if type(value) in (int, Int):
        return Int(value, expression)
    if type(value) in (float, Float):
        return Float(value, expression)
    return value


def _binary(base: type, method: str, sign: str, reflected: bool) -> Callable[[Any, Any], Any]:
    plain = getattr(base, method)

    def apply(self: Any, other: Any) -> Any:
        found = plain(self, other)
        if found is NotImplemented:
            return found
        left, right = (other, self) if reflected else (self, other)
        return tracked(found, (sign, left, right))

    return apply


for _base, _kind in ((int, Int), (float, Float)):
    for _name, _sign in (
        ("add", "+"), ("sub", "-"), ("mul", "*"), ("floordiv", "//"), ("mod", "%"), ("truediv", "/"),
    ):  # fmt: skip
        setattr(_kind, f"__{_name}__", _binary(_base, f"__{_name}__", _sign, False))
        setattr(_kind, f"__r{_name}__", _binary(_base, f"__r{_name}__", _sign, True))
    setattr(_kind, "__pow__", _binary(_base, "__pow__", "**", False))  # noqa: B010  mypy knows the plain one
