"""What a candidate's process said about one call: the call as a program, as far as a judge reads it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kernelmill.evaluate.judge.channel import BadFrame
from kernelmill.evaluate.trace.steps import reads


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
        return next(filter(None, map(reads, self.trace["steps"])), "")

    def unresolved(self, trouble: str) -> str:
        """The name that a kernel failed for want of, and that it has in the candidate's process only."""
        names = {str(name) for kernel in self.trace["kernels"].values() for name in kernel["unresolved"]}
        return next((name for name in sorted(names) if f"name '{name}' is not defined" in trouble), "")

    def bits_beyond(self, other: Recording) -> int:
        """How much this program says that another one does not."""
        mine, its = list(_parts(self.trace, "")), list(_parts(other.trace, ""))
        if [where for where, _ in mine] == [where for where, _ in its]:
            said = [one for one, before in zip(mine, its, strict=True) if one != before]
        else:
            said = list((Counter(mine) - Counter(its)).elements())
        places = enumerate(self.constants)
        data = sum(8 * len(blob) for at, blob in places if other.constants[at : at + 1] != [blob])
        return data + sum(_bits(where, value) for where, value in said)


def _bits(where: str, value: str) -> int:
    """How much a part says. A number with a point is one word of two, however many digits it is written with."""
    return _FLOAT if where.endswith(".float") else max(_WORD, 8 * len(value) if value[:1] == '"' else _FLOAT)


_FLOAT = 64
_DEEPEST = 40
_WORD = 32
"""The least that a part of a program counts, in bits, so that many small ones count."""


def _parts(value: Any, where: str) -> Iterator[tuple[str, str]]:
    """Every part of a program in order: where it is, and what is there, to the letter."""
    if isinstance(value, dict):
        for key, inner in sorted(value.items()):
            yield from _parts(inner, f"{where}.{key}")
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _parts(inner, f"{where}.{place}")
    else:
        yield where, json.dumps(value)


def _is_flat(value: Any, depth: int = 0) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return depth < _DEEPEST and all(_is_flat(one, depth + 1) for one in inner)


def check_form(trace: Any) -> None:
    """Raise `BadFrame` if this has not the form of a trace (`evaluate.trace.steps`), as far as a judge reads it."""
    steps, kernels = (
        (trace.get(name) for name in ("steps", "kernels")) if isinstance(trace, dict) else (None,) * 2
    )
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise BadFrame("a trace without steps")
    if not _is_flat(trace):
        raise BadFrame("a trace nested too deeply")
    if not isinstance(kernels, dict) or not all(
        isinstance(kernel, dict)
        and isinstance(kernel.get("unresolved"), list)
        and {"text", "uses"} <= kernel.keys()
        for kernel in kernels.values()
    ):
        raise BadFrame("a trace without kernels")
