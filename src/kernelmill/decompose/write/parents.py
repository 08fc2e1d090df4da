"""Name the variables of a parent that only calls its children, and write those calls."""

from __future__ import annotations

import keyword

from kernelmill.decompose.cut.part import Part
from kernelmill.decompose.literals import constant, structure
from kernelmill.decompose.record.types import Record, Tree, Value, values_of
from kernelmill.decompose.write.literals import Shapes, both, names_of_inputs
from kernelmill.decompose.write.variables import Variables


class Names(Variables):
    """The variables of a parent's `forward`."""

    def __init__(
        self,
        part: Part,
        sizes: dict[Part, list[tuple[Value, int]]],
        structured: bool,
        record: Record,
        other: Shapes,
    ) -> None:
        """`sizes` has the children in order, each with the sizes that it receives besides its inputs."""
        super().__init__(part, other, {"self", "nn", *keyword.kwlist})
        self._structured, self._output, self._sizes = structured, record.root.output, sizes
        self._given_sizes: dict[tuple[Value, int], str] = {}
        self._position = {child: at for at, child in enumerate(sizes)}
        self._last = {
            value: self._position[child]
            for child, asked in sizes.items()
            for value in [*child.inputs, *(value for value, _ in asked)]
        }
        self._asked_later: dict[int, set[tuple[int, int]]] = {}
        """By position, the sizes that later children receive; a variable that has one keeps its name."""
        later: set[tuple[int, int]] = set()
        for child, asked in reversed(sizes.items()):
            self._asked_later[self._position[child]] = later
            later = later | {both(value, axis, other) for value, axis in asked}
        self.opening: list[str] = []
        if structured:
            self.signature = list(record.root.args)
            self._taken |= set(self.signature)
            for name, tree in record.root.args.items():
                self._open(name, tree)
        else:
            for value, name in names_of_inputs(part).items():
                self._name(value, name)
            self.signature = list(self._names.values())
            self._taken |= set(self.signature)

    def _open(self, name: str, tree: Tree) -> None:
        """Unpack a structured argument into variables."""
        if isinstance(tree, Value):
            if tree not in self._names:
                self._name(tree, name)
        elif isinstance(tree, list | tuple) and any(True for _ in values_of(tree)):
            parts = [self._new(f"{name}_{at}") for at in range(len(tree))]
            self.opening.append(f"{', '.join(parts)}{',' if len(parts) == 1 else ''} = {name}")
            for part, item in zip(parts, tree, strict=True):
                self._open(part, item)
        elif isinstance(tree, dict):
            for key, item in tree.items():
                if any(True for _ in values_of(item)):
                    part = self._new(f"{name}_{key}")
                    self.opening.append(f"{part} = {name}[{key!r}]")
                    self._open(part, item)

    def add_sizes(self, sizes: list[tuple[Value, int]]) -> None:
        """Add the sizes that the part itself receives, after its inputs."""
        self._given_sizes = {one: self._new("size") for one in sizes}
        self.signature += self._given_sizes.values()

    def _size(self, value: Value, axis: int) -> str:
        if (value, axis) in self._given_sizes:
            return self._given_sizes[value, axis]
        wanted = both(value, axis, self._other)
        return self._size_now(value, axis) or self._equal_size(wanted) or str(wanted[0])

    def of(self, value: Value) -> str:
        return self._names[value]

    def call(self, attribute: str, child: Part) -> str:
        given = [
            self._names[value] if value in self._names else constant(value.example) for value in child.inputs
        ]
        args = ", ".join([*given, *(self._size(value, axis) for value, axis in self._sizes[child])])
        targets: list[str] = []
        at = self._position[child]
        for value in child.outputs:
            if value in self._last or value in self._part.outputs:
                tensors = [one for one in child.inputs if one.shape is not None]
                ended = [self._names[one] for one in tensors if not self._is_read_after(one, at)]
                free = [name for name in ended if name not in targets]
                self._name(value, self._target(value, child, free))
                targets.append(self._names[value])
            else:
                targets.append("_")
        return f"{', '.join(targets)} = self.{attribute}({args})"

    def _target(self, value: Value, child: Part, free: list[str]) -> str:
        """The variable for a result: the author's, else one that is free now."""
        at = self._position[child]
        if value.variable and self._authors_names:
            return self._new(value.variable, lambda name: name in free or self._is_over(name, at))
        return free[0] if free else self._new(child.title, lambda name: self._is_over(name, at))

    def closing(self) -> str:
        if self._structured:
            return f"return {self._tree(self._output)}"
        return f"return {', '.join(self._names[value] for value in self._part.outputs)}"

    def _tree(self, tree: Tree) -> str:
        if isinstance(tree, Value):
            return self._names[tree]
        return structure(tree, self._tree) or constant(tree)

    def _is_over(self, name: str, at: int) -> bool:
        """Whether nothing reads a variable from this child on. Without reuse, it would keep its memory."""
        value = self._value_of_variable.get(name)
        return value in self._last and self._last[value] < at and not self._is_read_after(value, at)

    def _is_size_read_after(self, value: Value, at: int) -> bool:
        """Whether a later child receives a size of it that no other variable has."""
        asked = self._asked_later[at].intersection(self._sizes_of(value))
        others = (one for one in self._value_of_variable.values() if one is not value)
        return bool(asked) and not asked <= {size for one in others for size in self._sizes_of(one)}
