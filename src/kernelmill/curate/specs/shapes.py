"""Check that Inputs and Outputs state exactly the shapes and dtypes of a trace.

Shapes and dtypes are read from a line by patterns: `(0, 1)` is a range after "values in" and a shape
otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

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
    stated = {dtype for meant in _dtypes_in(text) for dtype in meant}
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
        said = list(_shapes_in(line))
        whole = {shape for one in said if (shape := _whole(one)) is not None}
        if _SCALAR.search(line):
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
        for dtypes in _dtypes_in(line):
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


def _whole(said: _ShapeSaid) -> Shape | None:
    dims = tuple(dim for dim in said.dims if isinstance(dim, int))
    return dims if len(dims) == len(said.dims) else None


def _fits(said: _ShapeSaid, shapes: set[Shape]) -> bool:
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


def _written(said: _ShapeSaid) -> str:
    whole = _whole(said)
    if whole is not None:
        return str(whole)
    return "(" + ", ".join("_" if dim is None else str(dim) for dim in said.dims) + ")"


def _some(texts: set[str]) -> str:
    ordered = sorted(texts)
    more = ["…"] if len(ordered) > _MOST_NAMED else []
    return " or ".join([*ordered[:_MOST_NAMED], *more])


class _ShapeSaid(NamedTuple):
    """A shape in the text: None for a symbolic dimension, `...` for any number of dimensions.

    `remark`: the words around it say that it is not a tensor's shape but a range of values, axes or a window.
    """

    dims: tuple[int | str | None, ...]
    remark: bool
    part: bool
    """Whether the words around it say that it is part of a shape: `8 × 8 images`."""


_DIM = r"(?:(?:[A-Za-z]\w*\s*=\s*)?\d[\d_]*|[A-Za-z]\w*|\*|\.\.\.|-1)"
_TUPLE = re.compile(rf"(?P<open>[(\[])\s*(?P<dims>{_DIM}(?:\s*,\s*{_DIM})*\s*,?|)\s*(?P<close>[)\]])")
_PRODUCT = re.compile(
    r"(?<![\w.^])(?!0x)\d[\d_]*(?:(?:\s*[x×✕✖*∗·⋅]\s*|\s+by\s+)\d[\d_]*){1,16}(?!\w|\.\d)", re.IGNORECASE
)
_BARE = re.compile(r"\b(?:shape|size)s?\s*(?:is|of|=|:)?\s*(\d+(?:\s*,\s*\d+)+)(?!\w|\.\d)", re.IGNORECASE)
_SHAPE_WORDS = r"shapes?|shaped|sizes?|sized|dimensions|tensors?|matrix|matrices"
_RANGE_WORDS = (
    r"values?|valued|range\w*|ranging|between|interval|drawn|sampled|uniform\w*|normal\w*|random\w*|lies?|lying|indices|"
    r"index|integers?|labels?|probabilit\w+|class(?:es)?|clamp\w*|clip\w*|limit\w*|bound\w*|elements?|entries|entry|"
    r"(?:in|within|from|∈)(?=\s*$)"
)
_ANCHOR = re.compile(rf"\b(?:(?P<shape>{_SHAPE_WORDS})|(?:{_RANGE_WORDS}))\b|∈(?=\s*$)", re.IGNORECASE)
_SHAPE_WORD_BEFORE = re.compile(rf"\b(?:{_SHAPE_WORDS}|dimensions?)\b[^,;()]{{0,24}}$", re.IGNORECASE)
_ASIDE_BEFORE = re.compile(
    r"\b(?:(?:kernel|window|stride|padding|dilation|patch|filter|pool|broadcast|permut)\w*|axis|axes|dims?|over|along|"
    r"across|one of|among)\b[^,;]{0,16}$|\b(?:dimensions? order|order)\s*$",
    re.IGNORECASE,
)
_ASIDE_AFTER = re.compile(
    r"^[\s-]*(?:kernels?|windows?|filters?|strides?|patch(?:es)?|pool\w*|conv\w*|neighbou?rhoods?|regions?)\b",
    re.IGNORECASE,
)
_PART = re.compile(
    r"\b(?:each|per|spatial|images?|matrix|matrices|maps?|planes?|slices?|grids?|frames?|vectors?|heads?)\b",
    re.IGNORECASE,
)
_CALLS = re.compile(
    r"^(?:cl[ai]\w*|\w*range|rand\w*|uniform|u|n|normal|min|max|minimum|maximum|relu6|hardtanh|linspace|pow|mod|"
    r"softmax|sum|mean|log|exp|f|g)$",
    re.IGNORECASE,
)
_NEGATED = re.compile(
    r"\b(?:not|no|never|instead of|rather than|without|nor|neither|unlike|isn't|aren't)"
    r"(?:\s+(?:an?|any|the|in|as|of|to|cast|converted|shape|dtype))*[\s(\[`]*(?:torch\.)?$",
    re.IGNORECASE,
)


def _shapes_in(line: str) -> Iterator[_ShapeSaid]:
    """Yield every tuple or product of integers in a line, except negated ones ("not (8, 4)")."""
    line = line.replace("\\times", "×").replace("\\left", "").replace("\\right", "").replace("\\,", " ")
    line = re.sub(r"`|\$|\*\*", "", line)
    for found in _TUPLE.finditer(line):
        dims = [dim.strip() for dim in found["dims"].split(",") if dim.strip()]
        numbers = sum((dim[-1].isdigit() and not dim[0].isalpha()) or "=" in dim for dim in dims)
        before = line[max(0, found.start() - 60) : found.start()]
        call = re.search(r"\w*$", before)
        if dims and not numbers:
            continue
        if call and call[0] and (len(dims) < 2 or numbers < len(dims) or _CALLS.match(call[0])):
            continue
        # `(8)` may be anything in parentheses; `(8,)` is a tuple.
        if (
            len(dims) == 1
            and not found["dims"].rstrip().endswith(",")
            and not _SHAPE_WORD_BEFORE.search(before)
        ):
            continue
        halfopen = found["open"] + found["close"] in ("[)", "(]") and len(dims) == 2
        yield from _said(dims, line, found.start(), found.end(), halfopen)
    for found in _PRODUCT.finditer(line):
        yield from _said(re.findall(r"\d[\d_]*", found[0]), line, found.start(), found.end(), False)
    for found in _BARE.finditer(line):
        yield from _said(re.findall(r"\d+", found[1]), line, found.start(1), found.end(), False)


def _said(dims: list[str], line: str, start: int, end: int, halfopen: bool) -> Iterator[_ShapeSaid]:
    before = re.split(r"[;|]|\.\s", line[max(0, start - 60) : start])[-1]
    after = line[end : end + 24]
    if _NEGATED.search(before):
        return
    read = tuple(_dim(dim) for dim in dims)
    whole = [dim for dim in read if isinstance(dim, int)]
    rising = len(read) == len(whole) == 2 and whole[0] < whole[1]
    anchors = list(_ANCHOR.finditer(before))
    ranged = rising and bool(anchors) and anchors[-1]["shape"] is None
    aside = _ASIDE_BEFORE.search(before) is not None or _ASIDE_AFTER.search(after) is not None
    part = _PART.search(before[-30:]) is not None or _PART.search(after) is not None
    yield _ShapeSaid(read, halfopen or ranged or aside, part)


def _dim(text: str) -> int | str | None:
    if text in ("*", "..."):
        return "..."
    number = text.rpartition("=")[2].strip().replace("_", "")
    return int(number[:20]) if number.isdecimal() else None


_SCALAR = re.compile(r"\bscalars?\b|\b(?:0|zero)[- ]?d(?:im\w*)?\b|\brank[- ](?:0|zero)\b", re.IGNORECASE)

_DTYPES = {
    "float16": ("fp16", "f16", "half", "halftensor"), "bfloat16": ("bf16", "bfloat16tensor"),
    "float32": ("fp32", "f32", "float", "single", "floattensor"), "float64": ("fp64", "f64", "double", "doubletensor"),
    "int8": ("i8", "chartensor"), "uint8": ("u8", "byte", "bytetensor"), "int16": ("i16", "short", "shorttensor"),
    "int32": ("i32", "int", "inttensor"), "int64": ("i64", "long", "longtensor"), "bool": ("boolean", "booltensor"),
    "uint16": (), "uint32": (), "uint64": (), "complex32": (), "complex64": ("cfloat",), "complex128": ("cdouble",),
}  # fmt: skip
_BY_ALIAS = {alias: dtype for dtype, aliases in _DTYPES.items() for alias in (dtype, *aliases)}
# Words that mean a dtype only in the position of a dtype: "a long row" and "half of it" are prose.
_PROSE = ("half", "float", "single", "double", "byte", "short", "int", "long")
_PLAIN = "|".join(alias for alias in _BY_ALIAS if alias not in _PROSE)
_DTYPE = re.compile(
    rf"(?<![\w.])(?:torch\.)?(?P<plain>{_PLAIN}|float8_\w+)(?!\w)"
    rf"|\btorch\.(?P<torch>{'|'.join(_PROSE)})(?![\w(])"
    rf"|\b(?:d|data[ -]?)?types?(?:\s+is|\s+of|\s*[:=])?\s*(?P<typed>{'|'.join(_PROSE)})(?![\w-])"
    rf"|(?<![\w-])(?P<before>{'|'.join(_PROSE)})(?=[- ]precision\b|\s+(?:tensors?|d?type)\b)"
    rf"|(?:(?<=[,|(;:)\]])|(?<=[,|(;:)\]]\s))(?P<alone>{'|'.join(_PROSE)})(?=\s*(?:$|[,|);.]))"
    r"|\b(?P<bits>8|16|32|64)-?\s?bit\s+(?P<kind>float|signed int|int|brain float)",
    re.IGNORECASE,
)


def _dtypes_in(line: str) -> Iterator[frozenset[str]]:
    """Yield each dtype in a line, as the set of those it may mean, except negated ones ("not float64")."""
    line = re.sub(r"`|\*\*", "", line)
    for found in _DTYPE.finditer(line):
        if _NEGATED.search(line[max(0, found.start() - 40) : found.start()]):
            continue
        if found["bits"]:
            kind = found["kind"].lower().split()[-1]
            meant = {f"{kind}{found['bits']}"}
            if found["bits"] == "16" and kind == "float":
                meant.add("bfloat16")
        else:
            word = next(
                group for name, group in found.groupdict().items() if group and name != "bits"
            ).lower()
            meant = {_BY_ALIAS.get(word, word)}
            if word == "int" and not found["torch"]:
                meant.add("int64")  # in prose it just means an integer
        yield frozenset(meant)
