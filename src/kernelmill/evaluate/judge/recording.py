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

    def texts(self) -> set[str]:
        return {str(kernel["text"]) for kernel in self.trace["kernels"].values()}

    def differences(self, other: Recording) -> Differences:
        """What this program has that another one has not."""
        mine, its = self._parts(), other._parts()
        form = [key for key, _ in mine] == [key for key, _ in its]
        if form:
            found = [value for (_, value), (_, before) in zip(mine, its, strict=True) if value != before]
        else:
            found = list((Counter(map(str, mine)) - Counter(map(str, its))).elements())
        bits = 8 * sum(len(blob) for blob in self.constants if blob not in other.constants)
        return Differences(form, bits + sum(map(_bits, found)), sum(isinstance(one, float) for one in found))

    def _parts(self) -> list[tuple[str, Any]]:
        """Every part of the program in order: where it is, and the number or text there.

        A reference to a tensor, an operation, a kernel is part of the form: it is in the first of the two.
        """
        kernels = [
            {name: kernel[name] for name in ("text", "uses")} for kernel in self.trace["kernels"].values()
        ]
        steps = [
            {name: value for name, value in step.items() if name not in _SAID_BY_OTHERS}
            for step in self.trace["steps"]
        ]
        return list(_parts([kernels, steps], ""))


@dataclass
class Differences:
    """What one program has that another one has not."""

    same_form: bool
    """The steps, and the tensors they use, are the same: only numbers differ."""
    bits: int
    floats: int


_SAID_BY_OTHERS = ("value", "device")
"""Fields of a step that say nothing which its other fields do not."""


def _parts(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ("t", "op", "launch", "text", "out", "outs", "view", "addresses"):
                yield f"{where}.{key}={inner}", None
            elif key == "float":
                yield f"{where}.{key}", float.fromhex(str(inner))
            else:
                yield from _parts(inner, f"{where}.{key}")
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _parts(inner, f"{where}.{place}")
    else:
        yield where, value


def _bits(value: Any) -> int:
    """How much a number or a text can say. At least one word, so that many small ones count."""
    if isinstance(value, int):
        return max(32, value.bit_length())
    return max(32, 8 * len(str(value))) if isinstance(value, str) else 64


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
