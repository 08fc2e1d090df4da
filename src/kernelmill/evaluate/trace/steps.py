"""A trace: named tensors, and the steps that make them. Plain values only, so that it travels as JSON.

A tensor is a number. It is made by one step, and later steps may change it in place. The steps:

    {"leaf": path, "out": n}                    given from outside: `init.0`, `state.1`, `inputs.0`
    {"constant": i, "out": n, "device": "cpu", …}
                                                numbers that no recorded step has made: blob number i. Those
                                                in "addresses" (place, tensor, bytes) are addresses of memory
    {"seed": name}                              all generators are seeded with a number given from outside
    {"seed_apart": number or null}              generators draw other numbers (`task.values.seeded_apart`)
    {"view": m, "out": n, "size", "stride", "offset", "dtype"}
                                                the memory of m, seen otherwise by no recorded step
    {"op": "aten.add.Tensor", "args", "kwargs", "outs": [n, …]}
    {"read": m}                                 the host reads the numbers of m by no operation (`tolist`)
    {"called": true}                            the model is built: what follows is its call
    {"launch": key, "grid": [x, y, z], "args": {name: value}, "options": {…}}

A step with "in_place" is one of a captured CUDA graph: what it makes is where it was before.

Values: numbers, strings and None as they are, `{"t": n}` a tensor, `{"float": hex}`, `{"torch": "float32"}` a
dtype, a layout or a memory format, `{"device": "cpu"}`, `{"tl": "float32"}` a type of Triton's, `{"kernel": key}`,
`{"address": [n, bytes]}` an address in a tensor's memory, `{"sparse": […]}` a sparse tensor by its parts, `{"tuple": […]}`, lists. An operation's output that is not a tensor has no number.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

MOST_STEPS = 20_000
MOST_CONSTANTS = 4_000
CAPTURED_BEFORE = "a CUDA graph that was captured before"
MOST_TEXT = 6 << 20
"""Characters of a trace as JSON."""
MOST_CONSTANT_BYTES = 256 << 20


READS_NUMBERS = frozenset(f"aten.{name}.default" for name in ("_local_scalar_dense", "equal", "is_nonzero"))
READS_SIZES = frozenset(
    f"aten.{name}.default" for name in ("nonzero", "masked_select", "unique_dim", "_unique2")
) | {"aten.repeat_interleave.Tensor"}
"""Operations by which the host learns numbers, and those by whose results it learns sizes. After either, a program may
be another one for other values."""


def reads(step: dict[str, Any]) -> str:
    """What the host reads by a step; empty if it reads nothing."""
    name = str(step.get("op", ""))
    copied = name == "aten._to_copy.default" and '"cpu"' in str(step.get("kwargs")).replace("'", '"')
    if copied or name in READS_NUMBERS or name in READS_SIZES:
        return name[:80]
    return "a tensor's numbers" if "read" in step else ""


class Unrecordable(Exception):
    """The call does something that a trace cannot hold. The message says what, in a few words."""


@dataclass
class Trace:
    steps: list[dict[str, Any]] = field(default_factory=list)
    kernels: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What `kernel_text` makes of each kernel and device function."""
    output: Any = None
    """The result, as a nested value."""
    again: Any = None
    """The second call's, if one was recorded. It begins with the second `called`."""
