"""Make versions of a problem's source with smaller or other sizes, by rewriting its integers.

A problem's sizes are integers at module level (`batch_size = 128`, `shape = (64, 512)`, `n = 2**14`) and in
`get_inputs` and `get_init_inputs`. `shrunk` returns sources with smaller sizes, `other_shapes` sources with
odd ones. The caller has to try whether a version still runs, as `fit_size.pick` does. `Shrunk.changes` lists
the changes, so that a verdict can say at which sizes it holds.

Numbers change together. The same value gets the same new value. If one value divides another, the new ones do
too (heads and channels), as far as that keeps them small. A group keeps its size. Multiples of a power of two stay multiples of it.
Different values stay different, so that a kernel that mixes up two axes is detected. Only digits change: the
source's layout is kept.

Not covered: sizes computed inside classes and functions, and sizes that are floats or strings.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from kernelmill.base.python_text import parse_module

Kind = Literal["original", "shrunk", "batch_only", "odd"]

TARGETS = (512, 256, 128, 64, 32, 16, 8)
"""Upper bounds for the new sizes, in the order to try them. Divisibility may force a larger size."""
KEPT = 16
"""Numbers up to this, and up to half the target, are kept: kernel widths, strides, heads."""
CAPS = (128, 64, 32, 16, 8)
"""Upper bounds that ignore divisibility, for problems that do not run at any of `TARGETS`."""
_BATCH = re.compile(r"(?i)^(n_?)?(batch|bs|b|batch_?size|batch_?dim|num_?batch(es)?)$")
_GROUPS = re.compile(r"(?i)groups?$")
_NO_SIZE = re.compile(
    r"(?i)kernel|stride|pad|dilat|group|head|layer|depth|block|axis|window|patch|expan|ratio|class"
)
"""Names of numbers that define the computation rather than its size."""
_SOURCES = ("get_inputs", "get_init_inputs", "get_input_kwargs")
_CREATIONS = frozenset(["rand", "randn", "zeros", "ones", "empty", "full"])
_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Pow: lambda a, b: a**b if 0 <= b < 64 else 0,
    ast.LShift: lambda a, b: a << b if 0 <= b < 64 else 0,
}


@dataclass(frozen=True)
class Shrunk:
    """A version of a source. `changes` maps a name to the old and the new value."""

    text: str
    changes: dict[str, list[int]]
    kind: Kind
    same_model: bool = False
    """Only the inputs change. The constructor's arguments, and so the weights, are those of the original."""
    axis: int = -1
    """The one axis of the inputs that is changed; -1 if there are several or none is known."""

    def told(self) -> str:
        """The changes as a phrase of at most 200 characters."""
        sizes = [f"{old} to {new}" for old, new in self.changes.values()]
        if self.axis >= 0:
            return f"axis {self.axis} of the inputs, {', '.join(dict.fromkeys(sizes))}"[:200]
        parts: dict[str, None] = {}
        for name, size in zip(self.changes, sizes, strict=True):
            # The name of a literal is its position in the source, which is no use to a reader.
            parts[size if ":" in name else f"{name} {size}"] = None
        return ", ".join(parts)[:200]


@dataclass(frozen=True)
class _Number:
    """An integer in the source: a literal, or arithmetic on literals."""

    name: str
    value: int
    line: int
    start: int
    end: int
    axis: int = -1
    """Its position in a list of sizes given to a call in `get_inputs`; -1 elsewhere."""

    @property
    def owner(self) -> str:
        """The name of the constant or function that contains it."""
        return re.split(r"[\[.:]", self.name)[0]

    @property
    def batch(self) -> bool:
        return bool(_BATCH.match(self.name))


_Plan = Callable[[_Number], int]


def shrunk(code: str) -> list[Shrunk]:
    """The original, then smaller versions in the order to try: larger ones first, the batch alone last."""
    numbers = _numbers(code)
    versions = [Shrunk(code, {}, "original")]
    values, but_batch = [n.value for n in numbers], [n.value for n in numbers if not n.batch]
    for target in TARGETS:
        for plan in (
            _small_batch(_by_value(_related(but_batch, target))),
            _by_value(_related(values, target)),
        ):
            _add(versions, code, numbers, "shrunk", _whole_groups(numbers, plan))
    for target in TARGETS[-2:]:
        _add(
            versions,
            code,
            numbers,
            "shrunk",
            _small_batch(_by_value(_related(but_batch, target, distinct=False))),
        )
    for cap in CAPS:
        _add(versions, code, numbers, "shrunk", _small_batch(_capped(cap)))
    for cap in CAPS:
        _add(versions, code, numbers, "shrunk", _capped(cap))
    _add(versions, code, numbers, "batch_only", _small_batch(_same))
    return versions


def other_shapes(code: str) -> list[Shrunk]:
    """Versions of about the same size with odd sizes, in the order to try them.

    First come those that change only the inputs (`same_model`): every axis a different size, all sizes odd,
    one size, the batch. Then come those that change the constructor's arguments too. Both show hard-coded
    shapes and missing masks at the end of a block. Only with the first can a candidate learn the new size
    from its inputs alone.
    """
    numbers = [n for n in _numbers(code) if n.batch or (n.value >= 4 and not _NO_SIZE.search(n.owner))]
    built = _reached(code, "get_init_inputs")
    inputs_only = [n for n in numbers if n.owner not in built and n.owner != "get_init_inputs"]
    versions: list[Shrunk] = []
    axes = sorted({n.axis for n in inputs_only if n.axis >= 0})
    for kept in [set[int](), *({axis} for axis in axes[1:]), set(axes[2:]), set(axes[1:])]:
        _add(versions, code, inputs_only, "odd", _by_axis(kept), same_model=True)
    for same_model, some in ((True, inputs_only), (False, numbers)):
        values = sorted({n.value for n in some if not n.batch}, reverse=True)
        plans = [_by_value(_odd_multiples(values)), _odd, _by_value(_scaled(values))]
        for plan in [*map(_odd_batch, plans), *(_alone(value) for value in values), _odd_batch(_same)]:
            _add(versions, code, some, "odd", plan, same_model)
    return versions


def one_at_a_time(code: str) -> list[Shrunk]:
    """Versions in which one size becomes odd and the others stay: by axis of the inputs, by name, by value.

    The last changes all numbers of one value, for sizes on which the constructor and the inputs have to
    agree.
    """
    numbers = [n for n in _numbers(code) if n.batch or (n.value >= 2 and not _NO_SIZE.search(n.owner))]
    versions: list[Shrunk] = []
    for axis in sorted({n.axis for n in numbers if n.axis >= 0}):
        _add(versions, code, [n for n in numbers if n.axis == axis], "odd", _odd, same_model=True, axis=axis)
    for name in dict.fromkeys(n.name for n in numbers if n.axis < 0):
        _add(versions, code, [n for n in numbers if n.name == name], "odd", _odd)
    for value in dict.fromkeys(n.value for n in numbers):
        _add(versions, code, numbers, "odd", _alone(value))
    return versions


def _small_batch(others: _Plan) -> _Plan:
    return lambda n: min(n.value, 2) if n.batch else others(n)


def _whole_groups(numbers: list[_Number], others: _Plan) -> _Plan:
    """Keep what is in a group: the number of groups shrinks with what they divide.

    A normalisation over groups of two numbers instead of sixteen is another task.
    """

    def plan(n: _Number) -> int:
        divided = [m for m in numbers if m.value > n.value and m.value % n.value == 0 and not m.batch]
        if n.value <= KEPT or not divided or not _GROUPS.search(n.name):
            return others(n)
        whole = min(divided, key=lambda m: m.value)
        groups, rest = divmod(others(whole), whole.value // n.value)
        return groups if groups and not rest else others(n)

    return plan


def _capped(cap: int) -> _Plan:
    return lambda n: min(n.value, cap)


def _odd(n: _Number) -> int:
    """The next odd number."""
    return n.value + 1 + n.value % 2


def _same(n: _Number) -> int:
    return n.value


def _odd_batch(others: _Plan) -> _Plan:
    return lambda n: _odd(n) if n.batch else others(n)


def _alone(value: int) -> _Plan:
    return lambda n: _odd(n) if n.value == value else n.value


def _by_value(new: dict[int, int]) -> _Plan:
    return lambda n: new[n.value]


def _by_axis(kept: set[int]) -> _Plan:
    """Give every axis a different size: 4x4x4 becomes 5x6x7. Constants, which have no axis, become odd."""
    return lambda n: _odd(n) if n.axis < 0 else n.value if n.axis in kept else n.value + 1 + n.axis


def _add(
    versions: list[Shrunk],
    code: str,
    numbers: list[_Number],
    kind: Kind,
    plan: _Plan,
    same_model: bool = False,
    axis: int = -1,
) -> None:
    """Add the version that this plan gives, unless it changes nothing or is in the list already."""
    new = {n: plan(n) for n in numbers if plan(n) != n.value}
    if not new:
        return
    text = _rewritten(code, new)
    if all(text != version.text for version in versions):
        changes = {n.name: [n.value, value] for n, value in new.items()}
        versions.append(Shrunk(text, changes, kind, same_model, axis))


def _rewritten(code: str, new: dict[_Number, int]) -> str:
    lines = [line.encode() for line in code.split("\n")]  # the columns of the syntax tree count bytes
    for n in sorted(new, key=lambda n: (n.line, n.start), reverse=True):
        line = lines[n.line - 1]
        lines[n.line - 1] = line[: n.start] + str(new[n]).encode() + line[n.end :]
    return "\n".join(line.decode() for line in lines)


def _related(values: list[int], target: int, distinct: bool = True) -> dict[int, int]:
    """Map values to small ones that keep divisibility and, if `distinct` is set, stay different."""
    new: dict[int, int] = {}
    for value in sorted(set(values)):
        if value <= min(KEPT, target // 2):
            new[value] = value
            continue
        divisors = [v for v in new if v > 1 and value % v == 0]
        step = math.lcm(*(new[v] for v in divisors))
        while step > 4 * target:  # drop the smaller divisors first: the larger ones matter more
            divisors.remove(min(divisors))
            step = math.lcm(*(new[v] for v in divisors))
        # Blocks of a power of two that divided the old value divide the new one.
        step = math.lcm(step, min(value & -value, target))
        small = step * -(-min(value, target) // step)
        while (distinct and small in new.values()) or small % 2 < value % 2:
            small += step
        new[value] = min(small, value)
    return new


def _odd_multiples(values: list[int]) -> dict[int, int]:
    """Make each size odd.

    A multiple of a smaller size becomes a multiple of its new value: 4 and 32 give 5 and 35.
    """
    new: dict[int, int] = {}
    for value in sorted(values):
        divisors = [v for v in new if value % v == 0]
        times = value // max(divisors) if divisors else 0
        new[value] = new[max(divisors)] * max(times - 1 + times % 2, 3) if times else value + 1 + value % 2
    return new


def _scaled(values: list[int]) -> dict[int, int]:
    """Like `_odd_multiples`, but with the same ratios: 4 and 8 become 5 and 10."""
    new: dict[int, int] = {}
    for value in sorted(values):
        divisors = [v for v in new if value % v == 0]
        new[value] = new[max(divisors)] * (value // max(divisors)) if divisors else value + 1 + value % 2
    return new


# ---------------------------------------------------------------------------------------- finding the numbers


def _numbers(code: str) -> list[_Number]:
    found: list[_Number] = []
    for node in parse_module(code).body:
        if isinstance(node, ast.Assign):  # for `height = width = 128`, use the first name
            found += _assigned(node.targets[0], node.value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            found += _assigned(node.target, node.value)
        elif isinstance(node, ast.FunctionDef) and node.name in _SOURCES:
            found += _literals(node)
    return [n for n in found if n.value > 1]


def _reached(code: str, function: str) -> set[str]:
    """The module's names that a function uses, directly or through other names."""
    uses = {}
    for node in parse_module(code).body:
        used = {
            part.id
            for part in ast.walk(node)
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)
        }
        if isinstance(node, ast.FunctionDef):
            uses[node.name] = used
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                uses |= {part.id: used for part in ast.walk(target) if isinstance(part, ast.Name)}
    reached, todo = set[str](), [function]
    while todo:
        name = todo.pop()
        if name not in reached:
            reached.add(name)
            todo += uses.get(name, ())
    return reached


def _assigned(target: ast.expr, value: ast.expr) -> Iterator[_Number]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for one, its in zip(target.elts, value.elts, strict=True):
            yield from _assigned(one, its)
    elif isinstance(target, ast.Name):
        yield from _sizes(target.id, value)


def _sizes(name: str, node: ast.expr) -> Iterator[_Number]:
    number = value_of(node)
    if number is not None:
        if node.lineno == node.end_lineno and node.end_col_offset is not None:
            yield _Number(name, number, node.lineno, node.col_offset, node.end_col_offset)
    elif isinstance(node, ast.Tuple | ast.List):
        for index, item in enumerate(node.elts):
            yield from _sizes(f"{name}[{index}]", item)
    elif isinstance(node, ast.Dict):
        for key, item in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant):
                yield from _sizes(f"{name}[{key.value!r}]", item)
    elif isinstance(node, ast.Call | ast.BinOp):
        parts = (
            [*node.args, *(k.value for k in node.keywords)]
            if isinstance(node, ast.Call)
            else [node.left, node.right]
        )
        for index, item in enumerate(parts):
            yield from _sizes(f"{name}.{index}", item)


def value_of(node: ast.expr, deepest: int = 8) -> int | None:
    """The value of an integer literal, or of arithmetic on literals; None for anything else, including names.

    The text is untrusted, so both the depth and the numbers are bounded.
    """
    value = None
    if isinstance(node, ast.Constant):
        value = node.value if type(node.value) is int else None
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS and deepest:
        left, right = value_of(node.left, deepest - 1), value_of(node.right, deepest - 1)
        if left is None or right is None or (isinstance(node.op, ast.FloorDiv) and right == 0):
            return None
        value = _OPERATORS[type(node.op)](left, right)
    return value if value is not None and abs(value) < 1 << 63 else None


def _literals(function: ast.FunctionDef) -> Iterator[_Number]:
    """The integers of a function that makes arguments, with their positions in lists of sizes."""
    for node, axis in _walk(function, -1, function.name == "get_inputs"):
        number = value_of(node)
        if number is not None and node.end_col_offset is not None and node.lineno == node.end_lineno:
            name = f"{function.name}:{node.lineno}:{node.col_offset}"
            yield _Number(name, number, node.lineno, node.col_offset, node.end_col_offset, axis)


def _walk(node: ast.AST, axis: int, sizes: bool) -> Iterator[tuple[ast.expr, int]]:
    if isinstance(node, ast.expr) and value_of(node) is not None:
        yield node, axis
        return
    if isinstance(node, ast.Call) and sizes and isinstance(node.func, ast.Attribute):
        creation = node.func.attr in _CREATIONS
        for keyword in node.keywords:
            yield from _walk(keyword.value, -1, keyword.arg == "size")
        items: list[ast.expr] = node.args
        if creation and len(items) == 1 and isinstance(items[0], ast.List | ast.Tuple):
            items = items[0].elts
        for index, item in enumerate(items):
            yield from _walk(item, index if creation else -1, True)
        yield from _walk(node.func, -1, True)
        return
    if isinstance(node, ast.Subscript):  # an index is not a size
        yield from _walk(node.value, axis, sizes)
        return
    for child in ast.iter_child_nodes(node):
        yield from _walk(child, -1, sizes)
