"""The state of an emitted class: layers, parameters and buffers as lines of `__init__`.

It also tracks the constructor's arguments, and which tensor of the model each weight is.
"""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass
from itertools import chain
from typing import Any

from kernelmill.decompose.cut.kinds import snake
from kernelmill.decompose.cut.part import Part
from kernelmill.decompose.literals import constant
from kernelmill.decompose.nested import leaves
from kernelmill.decompose.record.types import Leaf, Written
from kernelmill.decompose.write.literals import OF_MODULES, numbered


@dataclass(frozen=True)
class Weight:
    """How to create a tensor that functions use directly."""

    shape: tuple[int, ...]
    dtype: str
    parameter: bool
    text: str | None = None
    """An expression with its values, if random numbers of its shape are not enough."""
    sign: int = 0
    """The sign of a parameter that stays away from zero on one side."""


_DRAWN = {0: "torch.randn({})", 1: "torch.rand({}) + 0.5", -1: "-torch.rand({}) - 0.5"}


class ClassState:
    def __init__(self, part: Part, weights: dict[str, Weight]) -> None:
        self._made = weights
        self._by_type = part.level in ("kernel", "fusion")
        self._prefix = part.scope.path if part.scope and not self._by_type else ""
        self._names: dict[str, str] = {}  # by path
        self._taken: set[str] = set(OF_MODULES)
        self._owners = {
            value.name: op.module
            for op in part.ops
            if op.module is not None
            for value in op.module.weights.values()
        }
        self.init: list[str] = []
        self.arguments: dict[str, Any] = {}
        """The constructor's arguments with their values."""
        self.weights: dict[str, str] = {}
        """Maps each weight's path in the class to its path in the model."""
        self.source_classes: list[str] = []
        """Classes of the source that it uses unchanged."""

    def name_of(self, path: str) -> str | None:
        """The attribute of an existing layer."""
        return self._names.get(path)

    def tensor(self, path: str) -> str:
        """The attribute path of a model weight: in the layer that owns it, if the class uses that layer."""
        if path in self._owners:
            self.layer(self._owners[path])
        return self._found(path) or self._weight(path)

    def device_buffer(self) -> str:
        """An empty buffer that moves with the module.

        It gives the device for a part that receives no tensor.
        """
        if "" not in self._names:
            name = self._attribute("", "place")
            self.init.append(
                f'self.register_buffer("{name}", torch.empty(0, dtype=torch.bool), persistent=False)'
            )
        return self._names[""]

    def layer(self, leaf: Leaf) -> str:
        known = self._names.get(leaf.path)
        if known is not None:
            return known
        name = self._attribute(leaf.path, snake(leaf.kind))
        args = []
        for argument, value in leaf.required.items():
            written = not self._by_type or bool(_needs(value))
            args.append(constant(value) if written else self._argument(argument, name, value))
        args += [f"{option}={constant(value)}" for option, value in leaf.options.items()]
        if leaf.dtype:
            args.append(f"dtype=torch.{leaf.dtype}")
        made = leaf.kind if leaf.opaque_reason else f"nn.{leaf.kind}"
        self.source_classes += (
            [leaf.kind, *_needs(list(leaf.required.values()))] if leaf.opaque_reason else []
        )
        self.init.append(f"self.{name} = {made}({', '.join(args)})")
        for weight, value in leaf.weights.items():
            tied = self._found(value.name)
            if tied is not None:
                self.init.append(f"self.{name}.{weight} = self.{tied}")
            else:
                self.weights[f"{name}.{weight}"] = value.name
        return name

    def _found(self, path: str) -> str | None:
        """The path at which this class already has a weight of the model."""
        return next((place for place, one in self.weights.items() if one == path), None)

    def _weight(self, path: str) -> str:
        weight = self._made[path]
        name = self._attribute(path, path.rpartition(".")[2])
        shape = (
            self._argument(f"{name}_shape", name, weight.shape) if self._by_type else constant(weight.shape)
        )
        dtype = "" if weight.dtype == "float32" else f", dtype=torch.{weight.dtype}"
        text = weight.text or _DRAWN[weight.sign].format(f"{shape}{dtype}")
        if weight.text and self._by_type:
            del self.arguments[shape]
        if weight.parameter:
            self.init.append(f"self.{name} = nn.Parameter({text})")
        else:
            self.init.append(f'self.register_buffer("{name}", {text})')
        self.weights[name] = path
        return name

    def _attribute(self, path: str, by_type: str) -> str:
        base = by_type
        if not self._by_type:
            base = path.removeprefix(f"{self._prefix}.") if self._prefix else path
        base = re.sub(r"\W+", "_", base).strip("_")
        base = f"layer_{base}" if base[:1].isdigit() else base
        name = next(
            name for name in numbered(base) if name not in self._taken and not keyword.iskeyword(name)
        )
        self._taken.add(name)
        self._names[path] = name
        return name

    def _argument(self, argument: str, owner: str, value: Any) -> str:
        """A constructor argument with this value; an existing one with the same value is reused by name."""
        names = chain([argument], numbered(f"{owner}_{argument}"))
        name = next(name for name in names if self.arguments.get(name, value) == value)
        self.arguments[name] = value
        return name


def _needs(value: Any) -> list[str]:
    """The source's classes whose objects occur in a constructor's arguments."""
    return [leaf.needs for leaf in leaves(value) if isinstance(leaf, Written)]
