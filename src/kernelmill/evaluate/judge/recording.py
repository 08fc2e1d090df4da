"""What a candidate's process said about one call: the call as a program, as far as a judge reads it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kernelmill.evaluate.judge.channel import BadFrame

_READS = frozenset(
    f"aten.{name}.default"
    for name in (
        "_local_scalar_dense",
        "nonzero",
        "masked_select",
        "equal",
        "is_nonzero",
        "unique_dim",
        "_unique2",
    )
) | {"aten.repeat_interleave.Tensor", "aten._to_copy.default"}
"""Operations after which a program may be another one for other values."""


@dataclass
class Recording:
    """What a candidate's process said about one call."""

    trace: dict[str, Any]
    constants: list[bytes] = field(default_factory=list)
    """The bytes of the trace's constants."""
    trouble: str = ""
    """Why there is no trace."""

    @classmethod
    def of(cls, said: dict[str, Any], out: list[memoryview]) -> Recording:
        """Take a recording from an answer. Raise `BadFrame` if it has not the form of one."""
        trace = said.get("trace")
        if trace is None:
            return cls({}, [], str(said.get("unrecordable"))[:300] or "it says nothing of its call")
        check_form(trace)
        blobs = trace.get("blobs")
        if type(blobs) is not int or not 0 <= blobs <= len(out):
            raise BadFrame("a trace without its constants")
        return cls(trace, [bytes(blob) for blob in out[len(out) - blobs :]])

    @property
    def reads(self) -> str:
        """What the host has read; empty if there is no sign of that."""
        reads = [step["op"] for step in self.trace["steps"] if _is_read(step)]
        return str((self.trace["reads"] + reads + [""])[0])[:80]

    def unresolved(self, trouble: str) -> str:
        """The name that a kernel failed for want of, and that it has in the candidate's process only."""
        names = {str(name) for kernel in self.trace["kernels"].values() for name in kernel["unresolved"]}
        return next((name for name in sorted(names) if f"name '{name}' is not defined" in trouble), "")

    def facts(self) -> Counter[str]:
        """Every number that is part of the program, how often."""
        inside = [step.get(name) for step in self.trace["steps"] for name in _LITERAL]
        inside += [kernel["uses"] for kernel in self.trace["kernels"].values()]
        return Counter(_numbers(inside))

    def texts(self) -> set[str]:
        return {str(kernel["text"]) for kernel in self.trace["kernels"].values()}


_LITERAL = ("args", "kwargs", "grid", "options", "size", "stride", "offset")


def check_form(trace: Any) -> None:
    """Raise `BadFrame` if this has not the form of a trace (`evaluate.trace.steps`), as far as a judge reads it."""
    steps, kernels, reads = (
        (trace.get(name) for name in ("steps", "kernels", "reads"))
        if isinstance(trace, dict)
        else (None,) * 3
    )
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise BadFrame("a trace without steps")
    if not isinstance(reads, list):
        raise BadFrame("a trace without reads")
    if not isinstance(kernels, dict) or not all(
        isinstance(kernel, dict)
        and isinstance(kernel.get("unresolved"), list)
        and {"text", "uses"} <= kernel.keys()
        for kernel in kernels.values()
    ):
        raise BadFrame("a trace without kernels")


def _is_read(step: dict[str, Any]) -> bool:
    if step.get("op") == "aten._to_copy.default":
        return '"cpu"' in str(step.get("kwargs")).replace("'", '"')
    return step.get("op") in _READS


def _numbers(value: Any) -> Iterator[str]:
    """The numbers in a value of a trace, but not those that name tensors."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "float":
                yield str(inner)
            elif key != "t":
                yield from _numbers(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _numbers(inner)
    elif isinstance(value, (int, str)):
        yield str(value)
