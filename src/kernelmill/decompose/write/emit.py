"""Write a part as readable source: a class with `__init__` and `forward`.

Layers are created with their own arguments, weights that functions use become parameters, and calls are
written as recorded. Variables are reused as people do (`x = F.relu(x)`). Calls that wrote into a tensor
create a new one. Names in kernels and fusions do not depend on their location in the model, so that equal
work gives equal text; layers keep their author's names.
"""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelmill.decompose.cut.kinds import short_of, title_of
from kernelmill.decompose.cut.part import Part
from kernelmill.decompose.literals import RESERVED, constant, structure
from kernelmill.decompose.record.types import TRAINING, Float, Int, Op, Tree, Value, sized_values, values_of
from kernelmill.decompose.write.class_body import ClassState, Weight
from kernelmill.decompose.write.literals import Shapes, both, names_of_inputs
from kernelmill.decompose.write.variables import Variables

_OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "true_divide": "/", "__truediv__": "/", "matmul": "@", "__matmul__": "@",
    "pow": "**", "__pow__": "**", "__eq__": "==", "__ne__": "!=", "__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">=",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "__and__": "&", "__or__": "|", "__xor__": "^",
    "__floordiv__": "//", "__mod__": "%", "remainder": "%", "floor_divide": "//", "__lshift__": "<<", "__rshift__": ">>",
}  # fmt: skip
_REFLECTED = {
    "__rsub__": "-", "__rtruediv__": "/", "__rdiv__": "/", "__rpow__": "**", "__radd__": "+", "__rmul__": "*", "__rmatmul__": "@",
    "__rfloordiv__": "//", "__rmod__": "%", "__rlshift__": "<<", "__rrshift__": ">>",
}  # fmt: skip
_SIGNS = {"neg": "-", "__neg__": "-", "__invert__": "~"}
_FRESH = frozenset([
    "__setitem__", "zeros", "ones", "full", "empty", "zeros_like", "ones_like", "full_like", "empty_like", "clone",
])  # fmt: skip
_MAKERS = frozenset(["arange", "bartlett_window", "blackman_window", "empty", "eye", "full", "hamming_window", "hann_window", "kaiser_window", "linspace", "logspace", "ones", "rand", "randint", "randn", "randperm", "range", "scalar_tensor", "tensor", "tril_indices", "triu_indices", "zeros"])  # fmt: skip
"""Functions that create a tensor from no other; without a device argument they would create it on the CPU."""
_HIDDEN = ("_stacklevel", "inplace", "out")
_FEW = 5
"""Calls with up to this many results unpack them into variables; with more, one variable holds the list."""


@dataclass
class Made:
    """The text of a class, and what it needs."""

    body: str
    """`class Model` without imports."""
    arguments: dict[str, Any]
    """The constructor's arguments, with the values for this part."""
    weights: dict[str, str]
    """Maps each weight's path in the class to its path in the model."""
    imports: set[str] = field(default_factory=set)
    unknown: bool = False
    """Whether it uses a size of a tensor that is not in this part."""
    source_classes: list[str] = field(default_factory=list)
    """Classes of the source that it uses unchanged."""
    sizes: list[tuple[Value, int]] = field(default_factory=list)
    """Sizes passed after its inputs: the tensor and the axis of each."""


class Writer(Variables):
    def __init__(self, part: Part, weights: dict[str, Weight], other: Shapes) -> None:
        """A size read from a tensor that is not in this part is taken from a tensor that is, if the two sizes
        are equal with other inputs (`other`) as well. If there is no such tensor, the size becomes an argument of `forward`. A size
        that does not change, or any size without `other`, is a literal number.
        """
        super().__init__(part, other, set(RESERVED))
        self._class = ClassState(part, weights)
        self._imports: set[str] = set()
        self._sizes: dict[tuple[Value, int], str] = {}
        self.unknown = False
        """Whether a size of a tensor that is not in this part was needed."""
        self._last = {value: op.index for op in part.ops for value in op.inputs()}
        self._last_sized = {
            value: op.index for op in part.ops for value in sized_values((op.args, op.kwargs))
        }
        self._given = names_of_inputs(part)
        for value, name in self._given.items():
            self._taken.add(self._name(value, name))

    def made(self) -> Made:
        lines = [line for op in self._part.ops for line in self._statement(op)]
        results = ", ".join(self._names[value] for value in self._part.outputs)
        signature = ", ".join(["self", *self._class.arguments])
        init = [
            f"def __init__({signature}):",
            "    super().__init__()",
            *(f"    {line}" for line in self._class.init),
        ]
        forward = ", ".join(["self", *self._given.values(), *self._sizes.values()])
        text = [
            "class Model(nn.Module):",
            *(f"    {line}" for line in init),
            "",
            f"    def forward({forward}):",
        ]
        text += [f"        {line}" for line in [*lines, f"return {results}"]]
        return Made(
            "\n".join(text) + "\n",
            self._class.arguments,
            self._class.weights,
            self._imports,
            self.unknown,
            self._class.source_classes,
            list(self._sizes),
        )

    # --------------------------------------------------------------------------------------------- statements

    def _statement(self, op: Op) -> list[str]:
        if short_of(op) == "__setitem__":
            return self._assignment(op)
        text = self._call(op)
        output = op.output
        values = [value for value in values_of(output) if value.op is op]
        if isinstance(output, Value):
            return [f"{self._target(op, output)} = {text}"]
        used = [value for value in values if value in self._last or value in self._part.outputs]
        if not used:
            used = values[:1]
        if isinstance(output, dict) or (isinstance(output, list | tuple) and len(output) > _FEW):
            name = self._new(_identifier(f"{title_of(op)}s"))
            keys = output.items() if isinstance(output, dict) else enumerate(output)
            for key, value in keys:
                if isinstance(value, Value):
                    self._names[value] = f"{name}[{key!r}]"
            return [f"{name} = {text}"]
        first = True

        def pattern(tree: Tree) -> str:
            nonlocal first
            if isinstance(tree, Value):
                if tree not in used:
                    return "_"
                name = self._target(op, tree) if first else self._fresh(op, tree)
                first = False
                return name
            return (structure(tuple(tree), pattern) or "_") if isinstance(tree, list | tuple) else "_"

        left = ", ".join(pattern(item) for item in output)
        return [f"{left}{',' if len(output) == 1 else ''} = {text}"]

    def _assignment(self, op: Op) -> list[str]:
        base, index, value = op.args
        (made,) = set(values_of(op.output))
        text = self._text(base)
        if self._own(base, op) and text.isidentifier():
            self._name(made, text)
            return [f"{text}[{self._index(index)}] = {self._text(value)}"]
        name = self._target(op, made)
        return [f"{name} = {text}.clone()", f"{name}[{self._index(index)}] = {self._text(value)}"]

    def _own(self, value: Tree, op: Op) -> bool:
        """Whether a tensor may be written: created here, not a view, and not used after this call."""
        made = value.op if isinstance(value, Value) else None
        return (
            made in self._part.ops
            and short_of(made) in _FRESH
            and self._last.get(value) == op.index
            and value not in self._part.outputs
        )

    def _target(self, op: Op, value: Value) -> str:
        """The variable for a result: the author's, or that of an input that is no longer needed."""
        if self._authors(value):
            return self._fresh(op, value)
        for source in op.inputs():
            name = self._names.get(source, "")
            if source.kind == "weight" or not name.isidentifier() or source.shape is None:
                continue
            if not self._is_read_after(source, op.index):
                return self._name(value, name)
            break
        return self._fresh(op, value)

    def _is_size_read_after(self, value: Value, at: int) -> bool:
        return self._last_sized.get(value, -1) > at

    def _fresh(self, op: Op, value: Value) -> str:
        if wanted := self._authors(value):
            return self._name(value, self._new(wanted, lambda name: self._ends(name, op)))
        base = self._class.name_of(op.module.path) if op.module else None
        return self._name(
            value, self._new(_identifier(base or title_of(op)), lambda name: self._is_over(name, op))
        )

    def _authors(self, value: Value) -> str:
        """The author's name for a value; empty in kernels and fusions, and where memory is short."""
        return value.variable if self._authors_names else ""

    def _ends(self, name: str, op: Op) -> bool:
        """Whether the result of this call may overwrite a variable."""
        held = self._value_of_variable.get(name)
        if held is None or held.shape is None:
            return False
        # `y = x.clone(); y[0] = z` reads z after y is assigned.
        here = short_of(op) != "__setitem__" or held is op.args[0]
        return (here or self._last.get(held) != op.index) and not self._is_read_after(held, op.index)

    def _is_over(self, name: str, op: Op) -> bool:
        """Whether nothing reads a variable from this call on. Without reuse, it would keep its memory."""
        held = self._value_of_variable.get(name)
        return (
            held is not None
            and held not in self._given
            and self._last.get(held) != op.index
            and not self._is_read_after(held, op.index)
        )

    # ---------------------------------------------------------------------------------------------- calls

    def _call(self, op: Op) -> str:
        if op.module is not None:
            attribute = self._class.layer(op.module)
            return f"self.{attribute}({self._arguments_text(op.args, op.kwargs)})"
        name, short = op.name, short_of(op)
        args = op.args
        if name.startswith("torch.Tensor.") and name.endswith(".__get__"):
            return f"{self._operand(args[0])}.{short}"
        method = name.startswith("torch.Tensor.")
        if method and short == "__getitem__":
            return f"{self._operand(args[0])}[{self._index(args[1])}]"
        if method and len(args) == 2 and not op.kwargs and short in _OPERATORS:
            return f"{self._operand(args[0])} {_OPERATORS[short]} {self._operand(args[1])}"
        if method and len(args) == 2 and short in _REFLECTED:
            return f"{self._operand(args[1])} {_REFLECTED[short]} {self._operand(args[0])}"
        if method and short in _SIGNS:
            return f"{_SIGNS[short]}{self._operand(args[0])}"
        kwargs = self._emitted_kwargs(op)
        if method:
            if not hasattr(torch.Tensor, short):  # only an in-place variant exists: `fill_`, `copy_`
                short = f"clone().{op.short}"
            return f"{self._operand(args[0])}.{short}({self._arguments_text(args[1:], kwargs)})"
        return f"{self._function(name, short)}({self._arguments_text(args, kwargs)})"

    def _function(self, name: str, short: str) -> str:
        module, _, last = name.rpartition(".")
        if not last.startswith("__"):
            last = short
        if module == "torch.nn.functional":
            self._imports.add("import torch.nn.functional as F")
            return f"F.{last}"
        for place in (module, "torch"):
            text = f"{place}.{last}".replace("torch.functional.", "torch.")
            found: Any = torch
            for step in text.split(".")[1:]:
                found = getattr(found, step, None)
            if found is not None and text.startswith("torch."):
                return text
        raise ValueError(f"{name} cannot be written as a call")

    def _emitted_kwargs(self, op: Op) -> dict[str, Any]:
        """The keyword arguments, without those that have no effect or are specific to this machine."""
        found = {}
        for name, value in op.kwargs.items():
            if name in _HIDDEN or (value is None and op.name.startswith("torch.nn.functional")):
                continue
            if name in ("requires_grad", "pin_memory", "layout", "device") and not value:
                continue
            found[name] = torch.device("cpu") if name == "device" else value
        # A CPU scalar can be combined with tensors of any device, and as a size it must be on the CPU.
        single = op.short in ("tensor", "scalar_tensor") and not isinstance(op.args[0], list | tuple)
        if op.name.removeprefix("torch.") in _MAKERS and not single:
            found["device"] = torch.device("cpu")
        return found

    def _arguments_text(self, args: tuple[Tree, ...], kwargs: dict[str, Tree]) -> str:
        named = (f"{name}={self._text(value)}" for name, value in kwargs.items())
        return ", ".join([*map(self._text, args), *named])

    def _operand(self, tree: Tree) -> str:
        text = self._text(tree)
        simple = re.fullmatch(r"[\w.]+(\[[^\]]*\])?|\d[\d.e-]*", text)
        return text if simple else f"({text})"

    def _index(self, tree: Tree) -> str:
        if isinstance(tree, tuple):
            inner = ", ".join(self._index_item(item) for item in tree)
            return f"{inner}," if len(tree) == 1 else inner or "()"
        return self._index_item(tree)

    def _index_item(self, tree: Tree) -> str:
        if isinstance(tree, slice):
            parts = ["" if one is None else self._text(one) for one in (tree.start, tree.stop, tree.step)]
            return ":".join(parts if parts[2] else parts[:2])
        return "..." if tree is Ellipsis else self._text(tree)

    def _text(self, tree: Tree) -> str:
        """A value, a constant or a structure of these as an expression."""
        if isinstance(tree, Value):
            return self._value(tree)
        if isinstance(tree, Int | Float):
            return self._number(tree)
        if tree is TRAINING:
            return "self.training"
        if isinstance(tree, torch.device):
            # Whatever the device was here, a part runs on that of its inputs.
            some = next((name for value, name in self._names.items() if value.shape is not None), None)
            return f"{some or f'self.{self._class.device_buffer()}'}.device"
        return structure(tree, self._text) or constant(tree)

    def _value(self, value: Value) -> str:
        if value.kind == "literal" and value not in self._names:
            return constant(value.example)
        if value.kind != "weight":
            return self._names[value]
        return f"self.{self._class.tensor(value.name)}"

    def _number(self, number: Any, inside: bool = False) -> str:
        sign, *parts = number.expression
        if sign == "given":
            return self._names[parts[0]]
        if sign == "size":
            value, axis = parts
            if (size := self._size_now(value, axis)) is not None:
                return size
            self.unknown = True
            return self._same_size(value, axis)
        if sign == "int":
            return f"int({self._number(parts[0])})"
        sides = [self._number(part, True) if isinstance(part, Int | Float) else repr(part) for part in parts]
        if isinstance(number, int) and all(side.lstrip("-").isdigit() for side in sides):
            return str(int(number))
        if sign == "+" and "0" in sides:  # `past_length + x.shape[1]`
            return sides[1 - sides.index("0")]
        text = f"{sides[0]} {sign} {sides[1]}"
        return f"({text})" if inside else text

    def _same_size(self, value: Value, axis: int) -> str:
        """An expression for a size of a tensor that is not in this part."""
        wanted = both(value, axis, self._other)
        if wanted[0] == wanted[1]:
            return str(wanted[0])
        if (size := self._equal_size(wanted)) is not None:
            return size
        if (value, axis) not in self._sizes:
            self._sizes[value, axis] = self._new("size")
        return self._sizes[value, axis]


def _identifier(base: str) -> str:
    base = re.sub(r"\W+", "_", base).strip("_") or "x"
    if keyword.iskeyword(base):
        return f"{base}_"
    return f"v{base}" if base[0].isdigit() else base
