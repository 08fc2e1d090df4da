"""Describe operations by the arguments that define what they compute, and compare two runs by them.

Those arguments are a slope, an `eps`, a dimension and the like, but no sizes. Numerical comparison only shows
what the inputs bring out. A clamp that no value reaches, or a slope that a low-precision dtype rounds away,
shows only here. So does a part that behaves differently at sizes at which numbers are not compared.
"""

from __future__ import annotations

from collections import Counter
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from kernelmill.torch_calls import tensors

tensors_in = partial(tensors.tensors_in, fields=True)
_DIMENSIONS = {"dim", "dims", "dim0", "dim1", "axis"}
_INTEGER_ARGUMENTS = _DIMENSIONS | {
    "approximate", "ceil_mode", "diagonal", "dilation", "groups", "ignore_index", "interpolation_mode", "kernel_size",
    "output_padding", "padding", "padding_idx", "padding_mode", "reduction", "stride",
}  # fmt: skip
"""Arguments whose integers are not sizes."""
_OF_SIZES = {
    "arange", "linspace", "range", "full", "new_full", "as_strided", "empty_strided", "new_empty_strided",
}  # fmt: skip
"""Operations whose numbers may come from sizes."""
DEVICE_ARGUMENTS = {"device", "layout", "pin_memory", "memory_format"}
_ONE_MORE = {"stack", "unsqueeze"}


def op_signature(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """One operation as text, with defaults filled in. `add_` counts as `add`."""
    name = func._schema.name.rpartition("::")[2].rstrip("_")
    if name in _OF_SIZES:
        return str(name)
    rank = next((tensor.dim() for tensor in tensors_in(args)), 0) + (name in _ONE_MORE)
    said = []
    for index, argument in enumerate(func._schema.arguments):
        if argument.name in DEVICE_ARGUMENTS:
            continue
        value = args[index] if index < len(args) else kwargs.get(argument.name, argument.default_value)
        number = (
            argument.name in _INTEGER_ARGUMENTS
            or "number" in str(argument.type)
            or "Tensor" in str(argument.type)
        )
        if (text := _text(value, number, rank if argument.name in _DIMENSIONS else 0)) is not None:
            said.append(f"{argument.name}={text}")
    return f"{name}({', '.join(said)})"


@cache
def is_view(func: Any) -> bool:
    """Whether an operation only creates a view, possibly in place: `unsqueeze_` writes no number either."""
    name = func._schema.name.rpartition("::")[2]
    plain = getattr(torch.ops.aten, name[:-1], None) if name.endswith("_") and name[:-1] else None
    return bool(func.is_view) or (
        plain is not None and any(getattr(plain, one).is_view for one in plain.overloads())
    )


def _text(value: Any, number: bool, rank: int) -> str | None:
    if isinstance(value, torch.Tensor) or value is None:
        return None
    if isinstance(value, list | tuple):
        parts = [_text(item, number, rank) for item in value]
        return None if None in parts else f"[{', '.join(map(str, parts))}]"
    if isinstance(value, int) and not isinstance(value, bool):
        if not number:
            return None
        return str(value + rank if rank and value < 0 else float(value) if not rank else value)
    return repr(value)


class OpSequence:
    """The operations of a run in order, each with the origin of its tensors."""

    def __init__(self) -> None:
        self.signatures: Counter[str] = Counter()
        """Counts of operations that are not views."""
        self.steps: list[tuple[Any, ...]] = []
        self._made: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        self._given = 0

    def same(self, given: torch.Tensor, output: Any) -> None:
        """Record that `output` is an alias of `given`."""
        if isinstance(output, torch.Tensor):
            self._made[output] = self._source(given)

    def add(self, text: str, given: Any, output: Any, view: bool) -> None:
        self.steps.append((text, *(self._source(tensor) for tensor in tensors_in(given))))
        if not view:
            self.signatures[text] += 1
        for place, tensor in enumerate(tensors_in(output)):
            self._made[tensor] = (len(self.steps), place)

    def _source(self, tensor: torch.Tensor) -> tuple[int, int]:
        if tensor not in self._made:  # an input or a weight, numbered in order of first use
            self._given += 1
            self._made[tensor] = (0, self._given)
        found: tuple[int, int] = self._made[tensor]
        return found


class RunOps(NamedTuple):
    """The operations of a finished run."""

    signatures: Counter[str]
    steps: list[tuple[Any, ...]]


def lost(original: RunOps, refactored: RunOps) -> list[str]:
    """Operations of the original that no child performs with these arguments."""
    missing, instead = (
        original.signatures - refactored.signatures,
        refactored.signatures - original.signatures,
    )
    lines = []
    for text, count in sorted(missing.items()):
        name = text.partition("(")[0]
        found = [other for other in sorted(instead) if other.partition("(")[0] == name]
        lines.append(f"no child has {text} x{count}" + (f", but {found[0]}" if found else ""))
    return lines


_MAKES = {"clone", "eye", "full", "full_like", "new_zeros", "ones", "zeros", "zeros_like"}
"""Copies and constants, used where the original has memory or numbers made outside torch. Without another
operation they have no effect."""
_WRITES = {"copy", "fill", "zero"}
"""What a part uses in place of writing into a view."""


def added(original: RunOps, refactored: RunOps, writes: bool) -> list[str]:
    """Operations that the refactored side performs more often than the original.

    `writes`: the original writes in place, so the operations that replace such writes are allowed.
    """
    more = refactored.signatures - original.signatures
    fine = _MAKES | _WRITES if writes else _MAKES
    return [
        f"the original has no {text} x{count}"
        for text, count in sorted(more.items())
        if text.partition("(")[0] not in fine
    ]


def follows_sizes(own: tuple[RunOps, RunOps], other: tuple[RunOps, RunOps]) -> str | None:
    """Why the refactored side depends on sizes where the original does not; None if it does not.

    The refactored side is the second of each pair. At other sizes it may perform new operations only where
    the original does too.
    """
    mine, theirs = (there.signatures - here.signatures for here, there in zip(own, other, strict=True))
    if more := theirs - mine:
        return f"with inputs of other sizes the refactored has {min(more)}, and the original has not"
    return None


def other_at_full_size(full: tuple[RunOps, RunOps], small: tuple[RunOps, RunOps]) -> str | None:
    """Why the numerical comparison does not represent full size; None if it does.

    The refactored side (second of each pair) may not perform other operations at the compared sizes than at
    full size unless the original does too.
    """
    if full[0].steps == small[0].steps:
        same = full[1].steps == small[1].steps
    else:  # the original depends on a size too: only the refactored side's extra operations may not
        same = full[1].signatures - full[0].signatures == small[1].signatures - small[0].signatures
    return (
        None
        if same
        else "at full size the refactored does other operations than at the size that is compared"
    )
