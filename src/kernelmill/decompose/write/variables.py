"""The variables of an emitted `forward`: a name for each value, reused where its value is no longer read."""

from __future__ import annotations

from collections.abc import Callable

from kernelmill.decompose.cut.part import Part
from kernelmill.decompose.record.types import Value
from kernelmill.decompose.write.literals import Shapes, both, numbered


class Variables:
    def __init__(self, part: Part, other: Shapes, taken: set[str]) -> None:
        """`other` holds the shapes of all tensors when the model's inputs have other sizes."""
        self._part, self._other = part, other
        self._authors_names = part.level in ("layer", "model") and not part.crowded
        """Kernels and fusions must read the same in any location, and where memory is short, the author's
        variables would keep it: helper functions free theirs on return, but here they are inlined."""
        self._taken = taken
        self._names: dict[Value, str] = {}
        self._value_of_variable: dict[str, Value] = {}
        """What each variable currently holds."""
        self._last: dict[Value, int] = {}
        """The position of the last statement that reads each value. Values that nothing reads are not in it."""

    def _name(self, value: Value, name: str) -> str:
        self._names[value], self._value_of_variable[name] = name, value
        return name

    def _new(self, base: str, is_over: Callable[[str], bool] | None = None) -> str:
        """A variable name that is free, or that of a variable that `is_over`."""
        names = numbered(base)
        name = next(one for one in names if one not in self._taken or (is_over is not None and is_over(one)))
        self._taken.add(name)
        return name

    def _is_read_after(self, value: Value, at: int) -> bool:
        """Whether a value, or only a size of it, is read after the statement at this position."""
        return (
            value in self._part.outputs
            or self._last.get(value, -1) > at
            or self._is_size_read_after(value, at)
        )

    def _is_size_read_after(self, value: Value, at: int) -> bool:
        raise NotImplementedError

    def _size_now(self, value: Value, axis: int) -> str | None:
        """A size of a value, if a variable holds it now."""
        name = self._names.get(value, "")
        return f"{name}.shape[{axis}]" if self._value_of_variable.get(name) is value else None

    def _equal_size(self, wanted: tuple[int, int]) -> str | None:
        """A size of any variable that equals the wanted one, also when the inputs have other sizes."""
        for name, held in self._value_of_variable.items():
            if wanted in (sizes := self._sizes_of(held)):
                return f"{name}.shape[{sizes.index(wanted)}]"
        return None

    def _sizes_of(self, value: Value) -> list[tuple[int, int]]:
        return [both(value, axis, self._other) for axis in range(len(value.shape or ()))]
