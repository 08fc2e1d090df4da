"""Partition a record into parts: kernels, fusions, layers, the model.

    kernel   one operation that a person would name, with the layout changes around it; also a module of the
             author's that is one operation (an RMSNorm written out), and calls that together have one name
             (x * sigmoid(x))
    fusion   2 to 5 consecutive kernels that one would write as one kernel
    layer    a module that contains several of those
    model    the whole, if it contains layers or more than `_MANY` kernels

Every call is in exactly one kernel. Parts follow each other in execution order, so each reads only values
that already exist.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from kernelmill.decompose.cut.kinds import fusion_role, is_idle, short_of, snake, title_of
from kernelmill.decompose.cut.op_patterns import FUSIONS, named_groups
from kernelmill.decompose.cut.part import Part
from kernelmill.decompose.levels import Level
from kernelmill.decompose.record.types import Op, Record, Scope, Value, values_of

MAX_FUSED = 5
_MODULE_KERNEL = 16
"""Maximum calls that a module of the author's may make and still be one kernel."""
_MOVES = ("cat", "stack", "concat", "repeat", "repeat_interleave", "roll", "flip", "pad")
_MANY = 12
_LOOP = 4
"""Minimum number of times that one line must run with different indices to count as a loop."""
_FOLLOWS = ("activation", "pointwise", "norm", "softmax", "reduction")


def partition(record: Record, source_level: int | None) -> Part:
    _count_loops(record)
    root = _Cutter(record).scope(record.root, source_level, True)
    root.inputs = [value for value in record.inputs if value in root.inputs]
    root.outputs = list(values_of(record.root.output)) or root.outputs
    _check(record, root)
    return root


def _count_loops(record: Record) -> None:
    """Turn loop indices into inputs, so that `x[t]` and `x[t] = y` in a loop are one piece of work."""
    loops: defaultdict[tuple[int | None, str, str], list[Op]] = defaultdict(list)
    for op in record.root.ops():
        if short_of(op) in ("__getitem__", "__setitem__") and op.line is not None:
            loops[op.line, op.scope.path, short_of(op)].append(op)
    for ops in loops.values():
        if len(ops) < _LOOP or len({repr(op.args[1]) for op in ops}) < _LOOP:
            continue
        for op in ops:
            index = op.args[1]
            given = tuple(map(_literal, index)) if isinstance(index, tuple) else _literal(index)
            op.args = (op.args[0], given, *op.args[2:])


def _literal(item: Any) -> Any:
    if isinstance(item, slice):
        return slice(_literal(item.start), _literal(item.stop), item.step)
    return Value("literal", "index", None, "int", example=item) if type(item) is int else item


class _Cutter:
    def __init__(self, record: Record) -> None:
        self._readers: defaultdict[Value, set[Op]] = defaultdict(set)
        for op in record.root.ops():
            for value in op.inputs():
                self._readers[value].add(op)
        self._returned = set(values_of(record.root.output))

    def scope(self, scope: Scope, source_level: int | None = None, root: bool = False) -> Part:
        own = [item for item in scope.items if isinstance(item, Op)]
        inner = [item for item in scope.items if isinstance(item, Scope) and any(True for _ in item.ops())]
        if root and len(own) == 1 and own[0].module and own[0].module.path == "":
            return self._whole(scope, "")
        if root and source_level == 1:
            return self._whole(scope, "it is a level 1 problem: one operation")
        if self._is_kernel(scope) and (not root or source_level is None):
            return self._whole(scope, f"all that {scope.kind} does is one operation")
        parts = self._kernels(own) + [self.scope(one) for one in inner]
        parts.sort(key=lambda part: part.at)
        parts = self._with_idle_inside(parts)
        if len(parts) == 1 and not root:
            return parts[0]
        while len(parts) == 1 and parts[0].children:  # the model only wraps it
            parts = parts[0].children
        if len(parts) == 1 and source_level is None:
            return self._whole(scope, "one operation")
        layers = [part for part in parts if part.level in ("layer", "fusion")]
        heavy = sum(part.kind == "heavy" for part in parts)
        if (
            root
            and not layers
            and (source_level == 2 or (source_level is None and len(parts) <= 2 * MAX_FUSED and heavy <= 2))
        ):
            why = "it is a level 2 problem" if source_level == 2 else "a few operations in a row"
            return self._part(
                "fusion", snake(scope.kind), self._merged(parts), scope, f"{why}, of {len(parts)} kernels"
            )
        parts = self._fused(parts)
        if len(parts) == 1 and not root:
            return parts[0]
        if not root:
            title = snake(
                scope.kind if scope.own else scope.path.rpartition(".")[2].strip("0123456789") or scope.kind
            )
            return self._part("layer", title, parts, scope, f"{scope.kind} holds {len(parts)} parts")
        kernels = sum(len(part.leaves()) for part in parts)
        level: Level = "model"
        if any(part.level == "layer" for part in parts):
            why = "it is made of layers"
        elif kernels > _MANY:
            why = f"{kernels} kernels are more than a layer"
        else:
            level, why = "layer", "a few kernels and fusions, and no layers inside"
        return self._part(level, snake(scope.kind), parts, scope, why)

    # ------------------------------------------------------------------------------------------------ kernels

    def _is_kernel(self, scope: Scope) -> bool:
        """Whether a module consists of small operations, such as the author's own norm or activation."""
        ops = list(scope.ops())
        kinds = [fusion_role(op) for op in ops]
        if not scope.own or any(isinstance(item, Scope) for item in scope.items):
            return False
        if any(op.module is not None and fusion_role(op) != "activation" for op in ops):
            return False
        small = ("layout", "pointwise", "activation", "reduction")
        if not all(kind in small or title_of(op) in _MOVES for kind, op in zip(kinds, ops, strict=True)):
            return False
        return 1 < sum(kind != "layout" for kind in kinds) <= _MODULE_KERNEL

    def _whole(self, scope: Scope, why: str) -> Part:
        ops = sorted(scope.ops(), key=lambda op: op.index)
        named = {title_of(op) for op in ops if fusion_role(op) != "layout"}
        title = named.pop() if len(named) == 1 else snake(scope.kind)
        return self._kernel(ops, title if title != "model" else title_of(_heaviest(ops)), scope, why)

    def _kernel(
        self, ops: list[Op], title: str, scope: Scope | None = None, why: str = "one operation"
    ) -> Part:
        part = Part("kernel", title, sorted(ops, key=lambda op: op.index), scope=scope, why=why)
        if part.opaque_reason:
            part.why = f"kept whole: {part.opaque_reason}"
        self._close(part)
        return part

    def _part(self, level: Level, title: str, children: list[Part], scope: Scope | None, why: str) -> Part:
        ops = sorted((op for child in children for op in child.ops), key=lambda op: op.index)
        part = Part(level, title, ops, children, scope, why)
        self._close(part)
        return part

    def _close(self, part: Part) -> None:
        """Set the part's inputs and outputs."""
        inside = set(part.ops)
        read = dict.fromkeys(value for op in part.ops for value in op.inputs())
        part.inputs = [value for value in read if value.kind != "weight" and value.op not in inside]
        if part.level not in ("kernel", "fusion"):
            part.inputs = [value for value in part.inputs if value.kind != "literal"]
        part.outputs = [
            value
            for op in part.ops
            for value in dict.fromkeys(op.outputs())
            if value in self._returned or self._readers[value] - inside
        ]
        if not part.outputs:  # its result is unused, but the call is made
            part.outputs = list(dict.fromkeys(part.ops[-1].outputs()))

    def _kernels(self, ops: Sequence[Op]) -> list[Part]:
        """Group the calls of one scope into kernels.

        A layout change joins the kernel that reads or makes its tensor.
        """
        groups = named_groups([op for op in ops if fusion_role(op) != "layout"])
        titles = [title for title, _ in groups]
        owner: dict[Op, int] = {op: at for at, (_, group) in enumerate(groups) for op in group}
        mine = set(ops)
        layout = [op for op in ops if fusion_role(op) == "layout"]
        for op in reversed(layout):
            readers = {reader for value in op.outputs() for reader in self._readers[value]}
            returned = any(value in self._returned for value in op.outputs())
            owners = {owner.get(reader) for reader in readers}
            if readers and readers <= mine and not returned and len(owners) == 1 and None not in owners:
                owner[op] = owners.pop()  # type: ignore[assignment]
        for op in layout:
            if op in owner:
                continue
            makers = [value.op for value in op.inputs() if value.op is not None]
            if len(makers) == 1 and makers[0] in owner:
                owner[op] = owner[makers[0]]
            else:  # a kernel of its own
                owner[op] = len(titles)
                titles.append(title_of(op))
        members: list[list[Op]] = [[] for _ in titles]
        for op in ops:
            members[owner[op]].append(op)
        return [self._kernel(group, title) for group, title in zip(members, titles, strict=True)]

    def _with_idle_inside(self, parts: list[Part]) -> list[Part]:
        """Merge dropout beside a single part into that part; on its own it would do nothing."""
        idle = [part for part in parts if all(map(is_idle, part.ops))]
        busy = [part for part in parts if part not in idle]
        if len(busy) != 1:
            return parts
        inside = [part for part in idle if self._taken_in(busy[0], part.ops)]
        return [part for part in parts if part not in inside]

    def _taken_in(self, part: Part, ops: list[Op]) -> bool:
        """Move operations into the kernel of this part that makes what they read, or reads what they make."""
        if part.level == "kernel":
            part.ops = sorted([*part.ops, *ops], key=lambda op: op.index)
        else:
            made = {value for op in ops for value in op.outputs()}
            makers = {value.op for op in ops for value in op.inputs()}
            child = next((one for one in part.children if not makers.isdisjoint(one.ops)), None) or next(
                (one for one in part.children if not made.isdisjoint(one.inputs)), None
            )
            if child is None or not self._taken_in(child, ops):
                return False
            part.ops = sorted([*part.ops, *ops], key=lambda op: op.index)
        self._close(part)
        return True

    # ------------------------------------------------------------------------------------------------ fusions

    def _merged(self, parts: list[Part]) -> list[Part]:
        """Reduce to at most `MAX_FUSED` kernels by merging adjacent small operations."""
        parts = list(parts)
        while len(parts) > MAX_FUSED:
            small = ("pointwise", "activation", "layout")
            pairs = [
                (len(a.ops) + len(b.ops), at)
                for at, (a, b) in enumerate(pairwise(parts))
                if (a.kind in small and b.kind in (*small, "reduction", "softmax"))
                or (a.kind == "reduction" and b.kind in small)
            ] or [(len(a.ops) + len(b.ops), at) for at, (a, b) in enumerate(pairwise(parts))]
            at = min(pairs)[1]
            first, second = parts[at : at + 2]
            parts[at : at + 2] = [
                self._kernel(
                    first.ops + second.ops, f"{first.title}_{second.title}", None, "small operations in a row"
                )
            ]
        return parts

    def _fused(self, parts: list[Part]) -> list[Part]:
        found: list[Part] = []
        at = 0
        while at < len(parts):
            group, title, why = self._group(parts, at)
            if len(group) > 1:
                found.append(self._part("fusion", title, group, None, why))
            else:
                found.append(parts[at])
            at += len(group)
        return found

    def _group(self, parts: list[Part], at: int) -> tuple[list[Part], str, str]:
        """The kernels from here on that belong together, their title, and why."""
        first = parts[at]
        if first.level != "kernel":
            return [first], "", ""
        for lengths, title, fits, why in FUSIONS:
            for length in lengths:
                some = parts[at : at + length]
                if len(some) == length and all(part.level == "kernel" for part in some) and fits(some):
                    return some, title, why
        group = [first]
        if first.kind in ("heavy", *_FOLLOWS) or first.title == "embedding":
            for part in parts[at + 1 : at + MAX_FUSED]:
                made = {value for one in group for value in one.outputs}
                if part.level != "kernel" or part.kind not in _FOLLOWS or not made & set(part.inputs):
                    break
                if first.kind != "heavy" and part.kind == group[-1].kind == "norm":
                    break
                group.append(part)
        why = (
            f"the result of {first.title} is changed before it is written" if first.kind == "heavy" else _PASS
        )
        return group, "_".join(part.title for part in group), why


_PASS = "one pass over memory instead of several"


def _heaviest(ops: list[Op]) -> Op:
    order = ("heavy", "norm", "softmax", "other", "reduction", "activation", "pointwise", "layout")
    return min(ops, key=lambda op: (order.index(fusion_role(op)), op.index))


def _check(record: Record, root: Part) -> None:
    """Assert that every call is in one kernel, and that every kernel reads existing values."""
    leaves = root.leaves()
    seen = [op for leaf in leaves for op in leaf.ops]
    assert sorted(op.index for op in seen) == sorted(op.index for op in record.root.ops()), (
        "a call is in no kernel, or in two"
    )
    _check_order(root, set(record.inputs))


def _check_order(part: Part, there: Iterable[Value]) -> None:
    known = set(there)
    for child in part.children:
        missing = [value for value in child.inputs if value not in known and value.kind != "literal"]
        assert not missing, f"{child.title} reads {missing[0].name} before it is there"
        if child.children:
            _check_order(child, child.inputs)
        known |= set(child.outputs)
