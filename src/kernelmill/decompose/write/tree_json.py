"""The distinct parts of a model as they are emitted, and the tree that `decomposition_tree.json` has of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any

from kernelmill.decompose.cut.kinds import title_of
from kernelmill.decompose.cut.part import Part
from kernelmill.decompose.levels import FOLDERS
from kernelmill.decompose.record.types import Record, Value
from kernelmill.decompose.write.emit import Made
from kernelmill.decompose.write.parents import Names


@dataclass(eq=False)
class EmittedPart:
    """A distinct piece of work, with its first instance."""

    id: str
    part: Part
    made: Made
    text: str
    instances: int = 0
    children: list[EmittedPart] = field(default_factory=list)
    attributes: list[str] = field(default_factory=list)
    """The attribute of each child instance in the step's parent."""
    step: str | None = None

    @property
    def path(self) -> str:
        return f"{FOLDERS[self.part.level]}/{self.id}.py"


@dataclass
class Source:
    code: str
    name: str
    """The model's name: `9_ResNet18`."""
    file: str
    level: int | None
    alone: str | None
    """The code as a file that needs nothing but torch, if possible."""
    assumptions: list[str]
    """Choices made because the user specified nothing."""


def tree_json(
    record: Record,
    source: Source,
    root: EmittedPart,
    nodes: list[EmittedPart],
    of: Mapping[Part, EmittedPart],
) -> dict[str, Any]:
    """The tree of a model. `of` has the emitted part of each instance."""
    levels = Counter(node.part.level for node in nodes)
    return {
        "metadata": {
            "source_file": source.file,
            "source_level": source.level,
            "model_name": source.name,
            "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
            "total_components": len(nodes),
            "by_level": {level: levels[level] for level in FOLDERS},
            "unique_kernels": levels["kernel"],
            "verification_status": "NOT_RUN",
            "root": root.id,
            "classification": {"level": root.part.level, "reason": root.part.why},
            "capture": {"road": record.mode, "notes": record.notes},
            "assumptions": source.assumptions,
        },
        "nodes": {node.id: _entry(node, of) for node in nodes},
        "data_flow": list(_flow(record, root.part, of)),
    }


def _entry(node: EmittedPart, of: Mapping[Part, EmittedPart]) -> dict[str, Any]:
    part = node.part
    return {
        "id": node.id,
        "name": part.title,
        "level": part.level,
        "path": node.path,
        "children": [child.id for child in node.children],
        "instances": [
            {"child": of[child].id, "attribute": attribute, "source_path": _where(child)}
            for child, attribute in zip_longest(part.children, node.attributes)
        ],
        "input_shapes": [list(value.shape) for value in part.inputs if value.shape is not None],
        "output_shapes": [list(value.shape or ()) for value in part.outputs],
        "input_dtypes": [value.dtype for value in part.inputs if value.shape is not None],
        "output_dtypes": [value.dtype for value in part.outputs],
        "instance_count": node.instances,
        "operations": operations(part),
        "reason": part.why,
        "source_path": _where(part),
        "step": node.step,
    }


def _flow(record: Record, root: Part, of: Mapping[Part, EmittedPart]) -> Iterator[dict[str, Any]]:
    made: dict[Value, str] = dict.fromkeys(record.inputs, "input")
    names = Names(root, {leaf: [] for leaf in root.leaves()}, True, record, {})
    for leaf in root.leaves():
        for value in (value for value in leaf.inputs if value.kind != "literal"):
            yield _edge(made[value], of[leaf].id, value, names.of(value))
        names.call("", leaf)
        made |= dict.fromkeys(leaf.outputs, of[leaf].id)
    for value in root.outputs:
        yield _edge(made[value], "output", value, names.of(value))


def _edge(source: str, to: str, value: Value, name: str) -> dict[str, Any]:
    return {
        "from": source,
        "to": to,
        "tensor_name": name,
        "shape": list(value.shape or ()),
        "dtype": value.dtype,
    }


def operations(part: Part) -> list[str]:
    return [op.module.kind if op.module else title_of(op) for op in part.ops]


def _where(part: Part) -> str:
    if part.scope is not None:
        return part.scope.path
    return next((op.module.path for op in part.ops if op.module), part.main.scope.path)
