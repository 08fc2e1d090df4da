"""Write the files of a decomposed model: problems, steps, the composition and the tree.

Each distinct part is a problem, and each part with children has a step. A piece of work has one file however
often it occurs; instances are counted. Nothing is proven here: `prove` does that from the files.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any

from kernelmill.decompose.cut.kinds import fusion_role, title_of
from kernelmill.decompose.cut.partition import Part
from kernelmill.decompose.levels import FOLDERS
from kernelmill.decompose.literals import constant
from kernelmill.decompose.record.types import Record, Value
from kernelmill.decompose.sources.source_parts import own_classes, own_inputs
from kernelmill.decompose.write.class_body import Weight
from kernelmill.decompose.write.emit import Made, Writer
from kernelmill.decompose.write.example_inputs import example_input
from kernelmill.decompose.write.literals import OF_MODULES, Shapes, both, names_of_inputs, numbered
from kernelmill.decompose.write.naming import class_name, file_name, plain, same_for_all
from kernelmill.decompose.write.parents import Names

_RUN = '''

def run_tests():
    """Run it once, and see that what comes out has the shapes and types that it has inside the model."""
    model = Model(*get_init_inputs()).eval()
    with torch.no_grad():
        outputs = model(*get_inputs())
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    found = [(tuple(one.shape), one.dtype) for one in outputs]
    expected = EXPECTED
    assert found == expected, f"{found}, expected {expected}"
    print("PASS")


if __name__ == "__main__":
    run_tests()
'''


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


class Files:
    def __init__(
        self, record: Record, root: Part, weights: dict[str, Weight], source: Source, other: Shapes | None
    ) -> None:
        self._record, self._root, self._source = record, root, source
        self._weights, self._other = weights, other
        self._nodes: dict[Any, EmittedPart] = {}
        self._of: dict[Part, EmittedPart] = {}
        self._made: dict[Part, Made] = {}
        self._ids: Counter[str] = Counter()
        self._steps: list[EmittedPart] = []

    def unknown_sizes(self) -> bool:
        """Whether a part needs a size of a tensor that it does not have."""
        return any(made.unknown for made in self._made.values())

    def written(self) -> dict[str, str]:
        root = self._node(self._root)
        self._count(self._root)
        files = {node.path: self._with_header(node) for node in self._nodes.values()}
        for number, node in enumerate(self._steps, 1):
            node.step = f"steps/step_{number}_{node.id}"
            refactored, weights = self._refactored(node, node.part.children, "children")
            files[f"{node.step}/original.py"] = files[node.path]
            files[f"{node.step}/refactored.py"] = refactored
            files[f"{node.step}/weight_map.json"] = _json(
                {"refactored_to_original": self._as_named(node, weights)}
            )
            for child in node.children:
                files[f"{node.step}/children/{child.id}.py"] = files[child.path]
        composed, weights = self._refactored(root, self._root.leaves(), FOLDERS["kernel"], whole=True)
        files["verification/original.py"] = self._source.code
        files["verification/composition_test.py"] = composed
        files["verification/weight_map.json"] = _json({"refactored_to_original": weights})
        files["decomposition_tree.json"] = _json(self._tree(root))
        return files

    # ------------------------------------------------------------------------------------------------ nodes

    def _node(self, part: Part) -> EmittedPart:
        made = self._written(part)
        dtypes = tuple(value.dtype for value in part.inputs)
        shapes = tuple(value.shape for value in part.inputs)
        key: tuple[Any, ...] = (part.level, made.body, tuple(map(repr, made.arguments.values())), dtypes)
        if part.level != "kernel" or not (made.weights or same_for_all(part)):
            key = (*key, shapes)
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = EmittedPart(self._name(part, made), part, made, "")
            node.children = list(dict.fromkeys(self._node(child) for child in part.children))
            if (
                part is self._root
                and self._source.alone is not None
                and (part.level == "model" or self._single() or self._model_is_opaque())
            ):
                node.text = self._source.alone
            else:
                node.text = self._problem(part, made)
            if part.children and not (part is self._root and self._single()):
                self._steps.insert(0, node)
        else:
            for child, known in zip(part.children, node.part.children, strict=True):
                self._same(child, known)
            if _is_empty(node.part) and not _is_empty(part) and not part.children:
                node.part, node.made, node.text = part, made, self._problem(part, made)
        self._of[part] = node
        return node

    def _model_is_opaque(self) -> bool:
        """Whether the whole model is one call of its own source."""
        return any(op.module is not None and op.module.path == "" for op in self._root.ops)

    def _single(self) -> bool:
        """Whether the whole contains one kernel and nothing else.

        Then the composition proves all that a step could.
        """
        return self._root.level != "kernel" and self._root.children == self._root.leaves()[:1]

    def _written(self, part: Part) -> Made:
        if part not in self._made:
            self._made[part] = Writer(part, self._weights, self._other).made()
        return self._made[part]

    def _same(self, part: Part, known: Part) -> None:
        self._of[part] = self._of[known]
        for child, other in zip(part.children, known.children, strict=True):
            self._same(child, other)

    def _count(self, part: Part) -> None:
        self._of[part].instances += 1
        for child in part.children:
            self._count(child)

    def _name(self, part: Part, made: Made) -> str:
        if part.level == "model" or (part is self._root and self._model_is_opaque()):
            base = plain(self._source.name)
        else:
            base = file_name(self._title(part), part, made)
        self._ids[base] += 1
        return base if self._ids[base] == 1 else f"{base}_v{self._ids[base]}"

    def _title(self, part: Part) -> str:
        """The title of a part.

        A root layer is titled after the source (`33_VanillaRNN`), a root fusion after its parts.
        """
        if part is not self._root or part.level == "kernel":
            return part.title
        if part.level == "layer":
            return self._source.name.lstrip("0123456789_") or part.title
        return "_".join(child.title for child in part.children[:6])

    def _problem(self, part: Part, made: Made) -> str:
        imports = ["import torch", "import torch.nn as nn", *sorted(made.imports)]
        own = own_inputs(self._source.code) if part is self._root and _takes_all(self._record, part) else None
        if own is not None:
            inputs = own.text
            imports += [line for line in own.imports if line not in imports]
        else:
            listed = [example_input(part, value) for value in part.inputs] + [
                str(both(*one, {})[0]) for one in made.sizes
            ]
            inputs = f"def get_inputs():\n    return [{', '.join(listed)}]\n"
        init = f"def get_init_inputs():\n    return {constant(list(made.arguments.values()))}\n"
        expected = ", ".join(f"({constant(value.shape)}, torch.{value.dtype})" for value in part.outputs)
        run = _RUN.replace("EXPECTED", f"[{expected}]")
        body = made.body
        if made.source_classes:
            source = own_classes(self._source.code, made.source_classes)
            if source is None:
                why = next(
                    op.module.opaque_reason for op in part.ops if op.module and op.module.opaque_reason
                )
                raise ValueError(f"{made.source_classes[0]} is kept whole and needs more than torch; {why}")
            imports += [line for line in source.imports if line not in imports]
            body = f"{source.text}\n\n{body}"
        return "\n".join(imports) + f"\n\n\n{body}\n\n{inputs}\n\n{init}{run}"

    def _with_header(self, node: EmittedPart) -> str:
        if node.text is self._source.alone:
            return node.text
        part = node.part
        names = names_of_inputs(part)
        where = (
            part.scope.path
            if part.scope and part.scope.path
            else next((op.module.path for op in part.ops if op.module), "")
        )
        times = "once" if node.instances == 1 else f"{node.instances} times"
        lines = [
            f'"""{node.id}: {_summary(part)}',
            "",
            f"Level:    {part.level}",
            f"Model:    {self._source.name}{f', {where}' if where else ''}; {times}",
            *(
                f"Input:    {names[value]}: {value.dtype} {constant(value.shape) if value.shape is not None else ''}".rstrip()
                for value in part.inputs
            ),
            *(f"Output:   {value.dtype} {constant(value.shape)}" for value in part.outputs),
            '"""',
            "",
        ]
        return "\n".join(lines) + f"\n{node.text}"

    # ------------------------------------------------------------------------------- parents made of children

    def _refactored(
        self, node: EmittedPart, children: list[Part], package: str, whole: bool = False
    ) -> tuple[str, dict[str, str]]:
        """A parent that only calls its children, and the model tensor of each weight."""
        structured = whole or node.text is self._source.alone
        classes: dict[EmittedPart, str] = {}
        attributes: dict[tuple[Any, ...], str] = {}
        taken = set(OF_MODULES)
        init: list[str] = []
        weights: dict[str, str] = {}
        sizes = {child: self._written(child).sizes for child in children}
        names = Names(node.part, sizes, structured, self._record, self._other or {})
        if not structured:
            names.add_sizes(node.made.sizes)
        body = list(names.opening)
        for child in children:
            made = self._written(child)
            kind = self._of[child]
            if kind not in classes:
                classes[kind] = class_name(kind.id, set(classes.values()))
            bound = (kind, tuple(made.weights.items()))
            if bound not in attributes:
                attributes[bound] = next(name for name in numbered(child.title) if name not in taken)
                taken.add(attributes[bound])
                arguments = ", ".join(constant(value) for value in kind.made.arguments.values())
                init.append(f"self.{attributes[bound]} = {classes[kind]}({arguments})")
                weights |= {f"{attributes[bound]}.{name}": path for name, path in made.weights.items()}
            if not whole:
                node.attributes.append(attributes[bound])
            body.append(names.call(attributes[bound], child))
        body.append(names.closing())
        if whole and self._model_is_opaque():  # it has the inputs and outputs of the model
            (attribute,) = attributes.values()
            weights = {f"{attribute}.{path}": path for path in weights.values()}
            given = ", ".join(f"{name}={name}" for name in names.signature)
            body = [f"return self.{attribute}({given})"]
        lines = [
            f'"""{self._source.name if whole else node.id} made of its {"kernels" if whole else "children"} alone."""',
            "",
        ]
        if whole:
            lines += ["import sys", "from pathlib import Path", ""]
            lines += [
                "import torch.nn as nn",
                "",
                "sys.path.insert(0, str(Path(__file__).resolve().parents[1]))",
                "",
            ]
        else:
            lines += ["import torch.nn as nn", ""]
        lines += [f"from {package}.{kind.id} import Model as {name}" for kind, name in classes.items()]
        lines += ["", "", "class Model(nn.Module):", "    def __init__(self):", "        super().__init__()"]
        lines += [f"        {line}" for line in init]
        lines += [
            "",
            f"    def forward({', '.join(['self', *names.signature])}):",
            *(f"        {line}" for line in body),
        ]
        return "\n".join(lines) + "\n" + (_COMPOSITION if whole else ""), weights

    def _as_named(self, node: EmittedPart, weights: dict[str, str]) -> dict[str, str]:
        """The weight map with the names that the step's original uses."""
        if node.text is self._source.alone:
            return weights
        back = {path: name for name, path in node.made.weights.items()}
        return {name: back[path] for name, path in weights.items()}

    # ----------------------------------------------------------------------------------------------- the tree

    def _tree(self, root: EmittedPart) -> dict[str, Any]:
        nodes = list(self._nodes.values())
        levels = Counter(node.part.level for node in nodes)
        return {
            "metadata": {
                "source_file": self._source.file,
                "source_level": self._source.level,
                "model_name": self._source.name,
                "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
                "total_components": len(nodes),
                "by_level": {level: levels[level] for level in FOLDERS},
                "unique_kernels": levels["kernel"],
                "verification_status": "NOT_RUN",
                "root": root.id,
                "classification": {"level": root.part.level, "reason": root.part.why},
                "capture": {"road": self._record.mode, "notes": self._record.notes},
                "assumptions": [],
            },
            "nodes": {node.id: self._entry(node) for node in nodes},
            "data_flow": list(self._flow()),
        }

    def _entry(self, node: EmittedPart) -> dict[str, Any]:
        part = node.part
        return {
            "id": node.id,
            "name": part.title,
            "level": part.level,
            "path": node.path,
            "children": [child.id for child in node.children],
            "instances": [
                {"child": self._of[child].id, "attribute": attribute, "source_path": _where(child)}
                for child, attribute in zip_longest(part.children, node.attributes)
            ],
            "input_shapes": [list(value.shape) for value in part.inputs if value.shape is not None],
            "output_shapes": [list(value.shape or ()) for value in part.outputs],
            "input_dtypes": [value.dtype for value in part.inputs if value.shape is not None],
            "output_dtypes": [value.dtype for value in part.outputs],
            "instance_count": node.instances,
            "operations": _operations(part),
            "reason": part.why,
            "source_path": _where(part),
            "step": node.step,
        }

    def _flow(self) -> Any:
        made: dict[Value, str] = dict.fromkeys(self._record.inputs, "input")
        names = Names(self._root, {leaf: [] for leaf in self._root.leaves()}, True, self._record, {})
        for leaf in self._root.leaves():
            for value in (value for value in leaf.inputs if value.kind != "literal"):
                yield _edge(made[value], self._of[leaf].id, value, names.of(value))
            names.call("", leaf)
            made |= dict.fromkeys(leaf.outputs, self._of[leaf].id)
        for value in self._root.outputs:
            yield _edge(made[value], "output", value, names.of(value))


_COMPOSITION = '''

def run_tests():
    """Give the source's weights to the kernels, and compare what comes out. At full size: `kernelmill prove` does more, with less memory."""
    import importlib.util
    import json

    import torch
    from torch.utils._pytree import tree_flatten

    here = Path(__file__).resolve().parent
    spec = importlib.util.spec_from_file_location("original", here / "original.py")
    original = importlib.util.module_from_spec(spec)
    sys.modules["original"] = original
    spec.loader.exec_module(original)

    def at(model, path):
        for name in path.split("."):
            model = model[int(name)] if name.isdigit() and not hasattr(model, name) else getattr(model, name)
        return model

    expected_model = original.Model(*original.get_init_inputs()).eval()
    found_model = Model().eval()
    names = json.loads((here / "weight_map.json").read_text())["refactored_to_original"]
    with torch.no_grad():
        for name, path in names.items():
            at(found_model, name).copy_(at(expected_model, path))
        inputs = original.get_inputs()
        copies = [one.clone() if isinstance(one, torch.Tensor) else one for one in inputs]
        torch.manual_seed(0)
        expected = tree_flatten(expected_model(*inputs))[0]
        torch.manual_seed(0)
        found = tree_flatten(found_model(*copies))[0]
    assert len(expected) == len(found)
    for one, other in zip(expected, found):
        torch.testing.assert_close(one, other)
    print("PASS")


if __name__ == "__main__":
    run_tests()
'''


def _edge(source: str, to: str, value: Value, name: str) -> dict[str, Any]:
    return {
        "from": source,
        "to": to,
        "tensor_name": name,
        "shape": list(value.shape or ()),
        "dtype": value.dtype,
    }


def _operations(part: Part) -> list[str]:
    return [op.module.kind if op.module else title_of(op) for op in part.ops]


def _summary(part: Part) -> str:
    """The operations of a kernel or fusion in order; for a larger part, their counts."""
    names = _operations(part)
    if part.level in ("kernel", "fusion"):
        return ", ".join(names)
    counted = Counter(
        name for name, op in zip(names, part.ops, strict=True) if fusion_role(op) != "layout"
    ) or Counter(names)
    return ", ".join(name if times == 1 else f"{times} {name}" for name, times in counted.items())


def _is_empty(part: Part) -> bool:
    """Whether an input is empty (a cache before the first token), which is no example of the part's work."""
    return any(0 in (value.shape or ()) for value in part.inputs)


def _where(part: Part) -> str:
    if part.scope is not None:
        return part.scope.path
    return next((op.module.path for op in part.ops if op.module), part.main.scope.path)


def _takes_all(record: Record, part: Part) -> bool:
    """Whether the part takes exactly the model's arguments, in order and without nesting."""
    return list(record.root.args.values()) == part.inputs


def _json(value: Any) -> str:
    return json.dumps(value, indent=2) + "\n"
