"""Names and sizes as written in emitted source."""

from __future__ import annotations

import keyword
from collections.abc import Iterator
from itertools import chain, count

from torch import nn

from kernelmill.decompose.cut.kinds import short_of
from kernelmill.decompose.cut.part import Part
from kernelmill.decompose.literals import RESERVED
from kernelmill.decompose.record.types import Value

OF_MODULES = frozenset(["training", *dir(nn.Module)])
"""Names that no layer or weight may have: `self.float` is a method."""
Shapes = dict[Value, tuple[int, ...]]


def numbered(base: str) -> Iterator[str]:
    return chain([base], (f"{base}_{number}" for number in count(2)))


def both(value: Value, axis: int, other: Shapes) -> tuple[int, int]:
    """A size, and the same size with other inputs."""
    assert value.shape is not None
    return int(value.shape[axis]), int(other.get(value, value.shape)[axis])


def names_of_inputs(part: Part) -> dict[Value, str]:
    """Names for a part's inputs: the author's from `forward`, else by their use, else x, y, z."""
    authors: dict[Value, str] = {}
    if part.scope is not None:
        authors = {tree: name for name, tree in part.scope.args.items() if isinstance(tree, Value)}
    elif part.level != "kernel":
        authors = {value: value.name for value in part.inputs if value.kind == "input"}
    attention = next((op for op in part.ops if short_of(op) == "scaled_dot_product_attention"), None)
    if attention is not None:
        authors |= {
            value: name
            for value, name in zip(attention.args, ("q", "k", "v", "attn_mask"), strict=False)
            if isinstance(value, Value)
        }
    letters = chain("xyzw", (f"x{number}" for number in count(5)))
    found: dict[Value, str] = {}
    for value in part.inputs:
        name = authors.get(value, "")
        if value.shape is None:
            name = name or value.name
        if not name.isidentifier() or keyword.iskeyword(name) or name in found.values() or name in RESERVED:
            name = next(letter for letter in letters if letter not in found.values())
        found[value] = name
    return found
