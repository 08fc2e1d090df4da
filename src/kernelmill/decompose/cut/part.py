"""A part of a model: a kernel, a fusion, a layer or the model itself."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from kernelmill.decompose.cut.kinds import fusion_role
from kernelmill.decompose.levels import Level
from kernelmill.decompose.record.types import Op, Scope, Value

_ROOM = 1 << 28
"""Elements: 1 GB of float32."""


@dataclass(eq=False)
class Part:
    level: Level
    title: str
    ops: list[Op]
    children: list[Part] = field(default_factory=list)
    scope: Scope | None = None
    why: str = ""
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)

    @property
    def _computes(self) -> Op | None:
        return next((op for op in self.ops if fusion_role(op) != "layout"), None)

    @property
    def main(self) -> Op:
        """The operation that a kernel is named after."""
        return self._computes or self.ops[-1]

    @property
    def at(self) -> int:
        """Its position in the run.

        A layout-only kernel counts from its first operation, because several may read it.
        """
        if self.level == "kernel":
            return (self._computes or self.ops[0]).index
        return min(child.at for child in self.children)

    @property
    def kind(self) -> str:
        kinds = [fusion_role(op) for op in self.ops]
        return next(
            (kind for kind in ("heavy", "norm", "softmax", "reduction") if kind in kinds),
            fusion_role(self.main),
        )

    @property
    def opaque_reason(self) -> str | None:
        """Why it holds a module that is kept whole; None if it holds none."""
        return next(
            (op.module.opaque_reason for op in self.ops if op.module and op.module.opaque_reason), None
        )

    @property
    def crowded(self) -> bool:
        """Whether its results do not all fit in memory at once, so that variables must be reused."""
        return sum(math.prod(v.shape or ()) for op in self.ops for v in op.outputs()) > _ROOM

    def leaves(self) -> list[Part]:
        return (
            [self] if self.level == "kernel" else [leaf for child in self.children for leaf in child.leaves()]
        )
