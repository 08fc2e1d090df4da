"""`decomposition_tree.json` with types, for display and for `collect`.

It trusts the file. `prove.tree`, which does not, reads it on its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from kernelmill.decompose.levels import Level


class NotATree(ValueError):
    """It is not a valid tree; the message is one line."""


class Instance(Struct):
    child: str
    source_path: str = ""


class Node(Struct):
    id: str
    level: Level
    path: str
    name: str = ""
    children: list[str] = []
    instances: list[Instance] = []
    input_shapes: list[list[int]] = []
    output_shapes: list[list[int]] = []
    input_dtypes: list[str] = []
    output_dtypes: list[str] = []
    instance_count: int = 1
    operations: list[str] = []
    reason: str = ""
    source_path: str = ""
    step: str | None = None

    @property
    def stem(self) -> str:
        return self.path.rpartition("/")[2].removesuffix(".py")


class Classification(Struct):
    level: Level
    reason: str


class Capture(Struct):
    mode: str = msgspec.field(name="road")
    notes: list[str] = []


class Metadata(Struct):
    model_name: str
    root: str
    source_file: str = ""
    source_level: int | None = None
    timestamp: str = ""
    total_components: int = 0
    by_level: dict[str, int] = {}
    unique_kernels: int = 0
    verification_status: str = "NOT_RUN"
    classification: Classification | None = None
    capture: Capture | None = None
    assumptions: list[Any] = []
    levels: list[Level] | None = None
    """The levels whose files were kept; null if all were."""


class TreeFile(Struct):
    metadata: Metadata
    nodes: dict[str, Node]

    def of_level(self, level: Level) -> list[Node]:
        return [node for node in self.nodes.values() if node.level == level]


class Row(NamedTuple):
    """A part at its position in the hierarchy."""

    depth: int
    node: Node
    times: int
    """Number of occurrences in its parent."""
    again: bool
    """Whether it already appeared further up, with its sizes and children."""
    last: bool
    """Whether it is the last child of its parent."""


def typed(tree: Mapping[str, Any]) -> TreeFile:
    """Validate and type a raw tree. Raises `NotATree`."""
    try:
        found = msgspec.convert(tree, TreeFile)
    except msgspec.ValidationError as error:
        raise NotATree(f"decomposition_tree.json is not a valid tree: {error}") from None
    named = {found.metadata.root, *(child for node in found.nodes.values() for child in node.children)}
    if missing := sorted(named - set(found.nodes)):
        raise NotATree(f"{missing[0]} is referenced but is not a node")
    return found


def rows(tree: TreeFile) -> Iterator[Row]:
    """The hierarchy from the root down.

    A part that occurs in several places is expanded only at the first.
    """
    seen: set[str] = set()
    way = [Row(0, tree.nodes[tree.metadata.root], 1, False, True)]
    while way:
        row = way.pop()
        again = row.node.id in seen
        yield row._replace(again=again)
        if again:
            continue
        seen.add(row.node.id)
        times = Counter(instance.child for instance in row.node.instances)
        below = [
            Row(
                row.depth + 1,
                tree.nodes[child],
                max(1, times[child]),
                False,
                at == len(row.node.children) - 1,
            )
            for at, child in enumerate(row.node.children)
        ]
        way += reversed(below)


def shapes(sizes: list[list[int]], dtypes: list[str]) -> str:
    """`2x3x4 float32, 5 int64`; a dtype shared by all is written once."""
    texts = ["x".join(map(str, size)) or "scalar" for size in sizes]
    kinds = [dtype.removeprefix("torch.") for dtype in dtypes]
    if len(kinds) != len(texts):
        return ", ".join(texts)
    if len(set(kinds)) == 1:
        return f"{', '.join(texts)} {kinds[0]}"
    return ", ".join(f"{text} {kind}" for text, kind in zip(texts, kinds, strict=True))
