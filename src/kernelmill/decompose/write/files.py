"""Write the files of a decomposed model: problems, steps, the composition and the tree.

Each distinct part is a problem, and each part with children has a step. A piece of work has one file however
often it occurs; instances are counted. Nothing is proven here: `prove` does that from the files.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from kernelmill.decompose.cut.kinds import fusion_role
from kernelmill.decompose.cut.part import Part
from kernelmill.decompose.levels import FOLDERS
from kernelmill.decompose.literals import constant
from kernelmill.decompose.record.types import Record
from kernelmill.decompose.sources.source_parts import own_classes, own_inputs
from kernelmill.decompose.write.class_body import Weight
from kernelmill.decompose.write.emit import Made, Writer
from kernelmill.decompose.write.example_inputs import example_input
from kernelmill.decompose.write.literals import OF_MODULES, Shapes, both, names_of_inputs, numbered
from kernelmill.decompose.write.naming import class_name, file_name, plain, same_for_all
from kernelmill.decompose.write.parents import Names
from kernelmill.decompose.write.templates import COMPOSITION_TEST, PART_TEST
from kernelmill.decompose.write.tree_json import EmittedPart, Source, operations, tree_json


class Files:
    def __init__(
        self, record: Record, root: Part, weights: dict[str, Weight], source: Source, other: Shapes
    ) -> None:
        """`other` holds the shapes of all tensors with other inputs, or nothing (see `write.emit`)."""
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
        files["decomposition_tree.json"] = _json(
            tree_json(self._record, self._source, root, list(self._nodes.values()), self._of)
        )
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
        run = PART_TEST.replace("EXPECTED", f"[{expected}]")
        body = made.body
        if made.source_classes:
            source = own_classes(self._source.code, made.source_classes)
            if source is None:
                kind, why = made.source_classes[0], part.opaque_reason
                raise ValueError(f"{kind} is kept whole and needs more than torch; {why}")
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
        names = Names(node.part, sizes, structured, self._record, self._other)
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
        lines += ["import sys", "from pathlib import Path", ""] if whole else []
        lines += ["import torch.nn as nn", ""]
        lines += ["sys.path.insert(0, str(Path(__file__).resolve().parents[1]))", ""] if whole else []
        lines += [f"from {package}.{kind.id} import Model as {name}" for kind, name in classes.items()]
        lines += ["", "", "class Model(nn.Module):", "    def __init__(self):", "        super().__init__()"]
        lines += [f"        {line}" for line in init]
        lines += [
            "",
            f"    def forward({', '.join(['self', *names.signature])}):",
            *(f"        {line}" for line in body),
        ]
        return "\n".join(lines) + "\n" + (COMPOSITION_TEST if whole else ""), weights

    def _as_named(self, node: EmittedPart, weights: dict[str, str]) -> dict[str, str]:
        """The weight map with the names that the step's original uses."""
        if node.text is self._source.alone:
            return weights
        back = {path: name for name, path in node.made.weights.items()}
        return {name: back[path] for name, path in weights.items()}


def _summary(part: Part) -> str:
    """The operations of a kernel or fusion in order; for a larger part, their counts."""
    names = operations(part)
    if part.level in ("kernel", "fusion"):
        return ", ".join(names)
    counted = Counter(
        name for name, op in zip(names, part.ops, strict=True) if fusion_role(op) != "layout"
    ) or Counter(names)
    return ", ".join(name if times == 1 else f"{times} {name}" for name, times in counted.items())


def _is_empty(part: Part) -> bool:
    """Whether an input is empty (a cache before the first token), which is no example of the part's work."""
    return any(0 in (value.shape or ()) for value in part.inputs)


def _takes_all(record: Record, part: Part) -> bool:
    """Whether the part takes exactly the model's arguments, in order and without nesting."""
    return list(record.root.args.values()) == part.inputs


def _json(value: Any) -> str:
    return json.dumps(value, indent=2) + "\n"
