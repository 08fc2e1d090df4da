"""Check that Inputs and Outputs state exactly the shapes and dtypes of a trace."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice

from kernelmill.curate.specs.text import SCALAR, ShapeSaid, dtypes_in, shapes_in
from kernelmill.problems.facts import TensorFact, Trace
from kernelmill.problems.source import ModuleSource

_MOST_FAULTS = 8
_MOST_NAMED = 4
_WORD = re.compile(r"[A-Za-z_]\w*(?:\[[^\]\s]{1,60}\])*")
_KEY = re.compile(r"\[\"([^\"\]]+)\"\]$")
_ALL = re.compile(r"\b(?:all|both|each|every|they|same|identical)\b", re.IGNORECASE)

Shape = tuple[int, ...]


def shape_faults(text: str, sections: dict[str, str], source: ModuleSource, trace: Trace) -> Iterator[str]:
    """Yield shape and dtype faults, a few per section. Time is linear in the text plus the tensors."""
    must_name = {
        param.name
        for param in source.forward_params
        if not param.kind.startswith("*") and param.name.strip("_")
    }
    inputs = _Section("Inputs", trace.inputs, (), [value.name for value in trace.input_values])
    outputs = _Section("Outputs", trace.outputs, trace.inputs, [value.name for value in trace.output_values])
    stated = {dtype for _, meant in dtypes_in(text) for dtype in meant}
    for section, names in ((inputs, must_name), (outputs, set[str]())):
        if section.tensors and section.title in sections:
            section.read(sections[section.title])
            yield from islice(section.wrong, _MOST_FAULTS)
            yield from islice(section.missing(names), _MOST_FAULTS)
            for dtype in sorted({tensor.dtype for tensor in section.tensors} - stated):
                yield f"{section.title}: the dtype {dtype} is not stated"


class _Group:
    """The tensors that a name refers to: one tensor, those of a list, or all."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.shapes: set[Shape] = set()
        self.dtypes: set[str] = set()
        self.said: set[Shape] = set()
        self.named = False

    def add(self, tensor: TensorFact) -> None:
        self.names.append(tensor.name)
        self.shapes.add(tuple(tensor.shape))
        self.dtypes.add(tensor.dtype)


class _Section:
    def __init__(
        self, title: str, tensors: Sequence[TensorFact], others: Sequence[TensorFact], values: Iterable[str]
    ) -> None:
        self.title = title
        self.tensors = tensors
        self.wrong: list[str] = []
        self._all = _Group()
        self._groups = _groups(tensors)
        self._others = _groups(others)
        self._values = set(values)
        self._said_of_all: set[Shape] = set()
        for tensor in tensors:
            self._all.add(tensor)

    def read(self, text: str) -> None:
        carried: list[_Group] = []
        indent = -1
        for line in text.splitlines():
            if not line.strip():
                continue
            words = set(_WORD.findall(line.replace("`", "")))
            bases = words | {word.partition("[")[0] for word in words}
            groups = [self._groups[word] for word in words if word in self._groups]
            groups = groups or [self._groups[word] for word in bases if word in self._groups]
            depth = len(line) - len(line.lstrip())
            if groups:
                # A line that consists of a name only is a heading for the lines below it.
                carried, indent = groups, -1 if len(words) == 1 else depth
            elif bases & self._values:
                carried, indent = [], depth
                continue  # a plain Python value is not a tensor
            elif carried and depth > indent and not _ALL.search(line):
                groups = carried
            self._line(line, groups, [self._others[word] for word in bases if word in self._others])

    def _line(self, line: str, groups: list[_Group], others: list[_Group]) -> None:
        for group in groups:
            group.named = True
        meant = groups or [self._all]
        of = f" of {groups[0].names[0]}" if len(groups) == 1 and len(groups[0].names) == 1 else ""
        said = list(shapes_in(line))
        whole = {shape for one in said if (shape := _whole(one)) is not None}
        if SCALAR.search(line):
            whole.add(())
        for group in meant:
            group.said |= whole
        self._all.said |= whole
        if not groups and _ALL.search(line):
            self._said_of_all |= whole
        for one in said:
            # Outputs may be described in terms of inputs: "(4,), one for each row of x, (4, 8)".
            if not one.remark and not any(_fits(one, group.shapes) for group in (*meant, *others)):
                right = _some({str(shape) for group in meant for shape in group.shapes})
                self.wrong.append(f"{self.title}: the shape{of} is {right}, not {_written(one)}")
        for _, dtypes in dtypes_in(line):
            if not any(dtypes & group.dtypes for group in (*meant, *others)):
                right = _some({dtype for group in meant for dtype in group.dtypes})
                self.wrong.append(f"{self.title}: the dtype{of} is {right}, not {min(dtypes)}")

    def missing(self, must_name: Collection[str]) -> Iterator[str]:
        for tensor in self.tensors:
            groups = [self._groups[name] for name in _names(tensor.name)]
            named = [group for group in groups if group.named]
            shape = tuple(tensor.shape)
            if not named and tensor.name.partition("[")[0] in must_name:
                yield f"{self.title}: {tensor.name} is not named"
            elif len(self.tensors) == 1 or not named:
                if shape not in self._all.said:
                    yield f"{self.title}: the shape of {tensor.name}, {shape}, is not stated"
            elif shape not in self._said_of_all and not any(shape in group.said for group in named):
                yield f"{self.title}: the shape of {tensor.name}, {shape}, is not stated beside its name"


def _names(name: str) -> list[str]:
    """The names that a text may use for a tensor: `output["loss"]`, `loss`; `xs[0]`, `xs`."""
    key = _KEY.search(name)
    return list(dict.fromkeys([name, *([key[1]] if key else []), name.partition("[")[0]]))


def _groups(tensors: Sequence[TensorFact]) -> dict[str, _Group]:
    groups: dict[str, _Group] = {}
    for tensor in tensors:
        for name in _names(tensor.name):
            groups.setdefault(name, _Group()).add(tensor)
    return groups


def _whole(said: ShapeSaid) -> Shape | None:
    dims = tuple(dim for dim in said.dims if isinstance(dim, int))
    return dims if len(dims) == len(said.dims) else None


def _fits(said: ShapeSaid, shapes: set[Shape]) -> bool:
    whole = _whole(said)
    if whole is not None:
        return whole in shapes or (said.part and any(_is_part(whole, shape) for shape in shapes))
    if "..." not in said.dims:
        return any(_alike(said.dims, shape) for shape in shapes)
    cut = said.dims.index("...")
    head, tail = said.dims[:cut], said.dims[cut + 1 :]
    return any(
        len(shape) >= len(head) + len(tail)
        and _alike(head, shape[: len(head)])
        and _alike(tail, shape[len(shape) - len(tail) :])
        for shape in shapes
    )


def _alike(dims: Sequence[int | str | None], shape: Shape) -> bool:
    return len(dims) == len(shape) and all(
        not isinstance(dim, int) or dim == size for dim, size in zip(dims, shape, strict=True)
    )


def _is_part(part: Shape, shape: Shape) -> bool:
    return any(shape[at : at + len(part)] == part for at in range(len(shape) - len(part) + 1))


def _written(said: ShapeSaid) -> str:
    whole = _whole(said)
    if whole is not None:
        return str(whole)
    return "(" + ", ".join("_" if dim is None else str(dim) for dim in said.dims) + ")"


def _some(texts: set[str]) -> str:
    ordered = sorted(texts)
    more = ["…"] if len(ordered) > _MOST_NAMED else []
    return " or ".join([*ordered[:_MOST_NAMED], *more])
