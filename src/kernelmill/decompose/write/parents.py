"""Name the variables of a parent that only calls its children, and write those calls."""

from __future__ import annotations

import keyword

from kernelmill.decompose.cut.partition import Part
from kernelmill.decompose.literals import constant
from kernelmill.decompose.record.types import Record, Tree, Value, values_of
from kernelmill.decompose.write.literals import Shapes, both, names_of_inputs, numbered


class Names:
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
        self._part, self._structured, self._output = part, structured, record.root.output
        self._sizes, self._other = sizes, other
        self._authors_names = part.level in ("layer", "model") and not part.crowded
        self._given_sizes: dict[tuple[Value, int], str] = {}
        self._names: dict[Value, str] = {}
        self._value_of_variable: dict[str, Value] = {}
        """What each variable currently holds."""
        self._taken: set[str] = {"self", "nn", *keyword.kwlist}
        self._last = {
            value: child
            for child, asked in sizes.items()
            for value in [*child.inputs, *(value for value, _ in asked)]
        }
        self._asked_later: dict[Part, set[tuple[int, int]]] = {}
        """Sizes that later children receive; a variable that has one keeps its name."""
        later: set[tuple[int, int]] = set()
        for child, asked in reversed(sizes.items()):
            self._asked_later[child] = later
            later = later | {both(value, axis, other) for value, axis in asked}
        self._outputs = set(part.outputs)
        self._order = {child: at for at, child in enumerate(sizes)}
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
        if self._value_of_variable.get(self._names.get(value, "")) is value:
            return f"{self._names[value]}.shape[{axis}]"
        wanted = both(value, axis, self._other)
        for name, one in self._value_of_variable.items():
            for place, size in enumerate(self._both(one)):
                if size == wanted:
                    return f"{name}.shape[{place}]"
        return str(wanted[0])

    def _both(self, value: Value) -> list[tuple[int, int]]:
        return [both(value, axis, self._other) for axis in range(len(value.shape or ()))]

    def of(self, value: Value) -> str:
        return self._names[value]

    def call(self, attribute: str, child: Part) -> str:
        given = [
            self._names[value] if value in self._names else constant(value.example) for value in child.inputs
        ]
        args = ", ".join([*given, *(self._size(value, axis) for value, axis in self._sizes[child])])
        targets: list[str] = []
        for value in child.outputs:
            if value in self._last or value in self._outputs:
                ended = [self._names[one] for one in child.inputs if self._ends(one, child)]
                free = [name for name in ended if name not in targets]
                self._name(value, self._target(value, child, free))
                targets.append(self._names[value])
            else:
                targets.append("_")
        return f"{', '.join(targets)} = self.{attribute}({args})"

    def _target(self, value: Value, child: Part, free: list[str]) -> str:
        """The variable for a result: the author's, else one that is free now."""
        if value.variable and self._authors_names:
            for name in numbered(value.variable):
                if name in free or name not in self._taken or self._is_over(name, child):
                    self._taken.add(name)
                    return name
        return free[0] if free else self._new(child.title, child)

    def closing(self) -> str:
        if self._structured:
            return f"return {self._tree(self._output)}"
        return f"return {', '.join(self._names[value] for value in self._part.outputs)}"

    def _tree(self, tree: Tree) -> str:
        if isinstance(tree, Value):
            return self._names[tree]
        if isinstance(tree, tuple):
            return f"({', '.join(self._tree(item) for item in tree)}{',' if len(tree) == 1 else ''})"
        if isinstance(tree, list):
            return f"[{', '.join(self._tree(item) for item in tree)}]"
        if isinstance(tree, dict):
            return "{" + ", ".join(f"{key!r}: {self._tree(item)}" for key, item in tree.items()) + "}"
        return constant(tree)

    def _name(self, value: Value, name: str) -> None:
        self._names[value], self._value_of_variable[name] = name, value

    def _ends(self, value: Value, child: Part) -> bool:
        """Whether this child is the last one that reads it."""
        return (
            self._last[value] is child
            and value not in self._outputs
            and value.shape is not None
            and not self._is_asked_later(value, child)
        )

    def _is_over(self, name: str, child: Part) -> bool:
        """Whether nothing reads a variable from this child on. Without reuse, it would keep its memory."""
        value = self._value_of_variable.get(name)
        return (
            value is not None
            and value not in self._outputs
            and value in self._last
            and self._order[self._last[value]] < self._order[child]
            and not self._is_asked_later(value, child)
        )

    def _is_asked_later(self, value: Value, child: Part) -> bool:
        """Whether a later child receives a size of it that no other variable has."""
        asked = self._asked_later[child].intersection(self._both(value))
        others = (one for one in self._value_of_variable.values() if one is not value)
        return bool(asked) and not asked <= {size for one in others for size in self._both(one)}

    def _new(self, base: str, child: Part | None = None) -> str:
        """A free variable name; with `child`, one that is no longer read at its call is free too."""
        name = next(
            name
            for name in numbered(base)
            if name not in self._taken or (child is not None and self._is_over(name, child))
        )
        self._taken.add(name)
        return name
