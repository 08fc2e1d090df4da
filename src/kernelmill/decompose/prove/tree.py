"""Read the files of one decomposed model and check them against each other. Nothing is run.

The tree names exactly the files under level_*. Every node is reachable from the root, and leaves are kernels.
A step's original is its node's file, and its children are byte-for-byte the files of the node's children.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from kernelmill.decompose.levels import FOLDERS
from kernelmill.decompose.prove.rules.child import child_violations, computes_nothing, same_class
from kernelmill.decompose.prove.rules.parent import Parent

TREE = "decomposition_tree.json"
KERNELS = FOLDERS["kernel"]
_CODES = {
    "fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16",
    "i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8", "u8": "uint8",
}  # fmt: skip


_SCALARS = {"int", "float", "str", "complex", "NoneType", "none"}
"""A tree also lists inputs that are not tensors. A tensor is never an `int`, but a scalar one may be a
`bool`; scalar bools are left out."""


class Unreadable(Exception):
    """The folder is not a decomposed model; the message is one line."""


class ClaimedInstance(msgspec.Struct):
    child: str
    attribute: str | None = None


class ClaimedNode(msgspec.Struct):
    level: str
    path: str
    children: list[str]
    id: str = ""
    name: str = ""
    input_shapes: list[Any] = []
    output_shapes: list[Any] = []
    input_dtypes: list[Any] = []
    output_dtypes: list[Any] = []
    step: str | None = None
    instance_count: int | None = None
    instances: list[ClaimedInstance] = []

    @property
    def module(self) -> str:
        return PurePosixPath(self.path).stem

    def tensors(self, which: str) -> list[list[Any]]:
        """`inputs` or `outputs` as shapes with dtypes."""
        shapes, dtypes = (
            (self.input_shapes, self.input_dtypes)
            if which == "inputs"
            else (self.output_shapes, self.output_dtypes)
        )
        names = [_CODES.get(str(dtype), str(dtype).removeprefix("torch.")) for dtype in dtypes]
        both = zip(shapes, names, strict=False)
        return [[shape, name] for shape, name in both if name not in _SCALARS and (shape or name != "bool")]


class Claim(msgspec.Struct):
    """One claim to prove. `files` are the refactored side's, by path; `main` is the parent's path."""

    name: str
    folder: Path
    original: str
    files: dict[str, str]
    main: str
    weight_map: dict[str, str]
    violations: list[str]
    node: ClaimedNode
    single: bool = False
    of_the_node: bool = True
    """Whether the original is the node's own file.

    The source may take its inputs in another order, or more of them.
    """
    made_of: dict[str, str] = {}
    """The node of each attribute of the parent."""
    made_with: dict[str, list[str]] = {}
    """The constructor arguments of each attribute of the parent."""


class Tree:
    """A folder as read. `faults` are those of the whole; a claim holds its own violations."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.faults: list[str] = []
        try:
            raw = json.loads(self._read(TREE))
            self.nodes = msgspec.convert(raw["nodes"], dict[str, ClaimedNode])
            self.metadata: dict[str, Any] = dict(raw["metadata"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise Unreadable(
                f"{TREE} is not a tree: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
            ) from None
        if not self.nodes:
            raise Unreadable(f"{TREE} has no nodes")
        self.root = self._root()
        self.texts = {name: self._text(node) for name, node in self.nodes.items()}
        self._walk()
        self._levels()
        self.source = self._read("verification/original.py")
        self._checked = {
            name: child_violations(self.texts[name])
            for name, node in self.nodes.items()
            if name != self.root or not node.children
        }
        for name, violations in self._checked.items():
            self.faults += [f"{self.nodes[name].path}: {violation}" for violation in violations]
        self.steps = self._steps()
        try:
            self.composition = self._composition()
        except Unreadable as error:
            self.composition = Claim(
                "composition", folder / "verification", self.source, {}, "composition_test.py", {}, [str(error)],
                self.nodes[self.root],
            )  # fmt: skip

    def _read(self, path: str) -> str:
        file = self.folder / path
        if not file.resolve().is_relative_to(self.folder.resolve()):
            raise Unreadable(f"{path} leads out of the folder")
        try:
            return file.read_bytes().decode("utf-8")
        except OSError as error:
            raise Unreadable(f"{path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise Unreadable(f"{path}: not UTF-8") from None

    def _root(self) -> str:
        named = self.metadata.get("root")
        below = {child for node in self.nodes.values() for child in node.children}
        top = [name for name in self.nodes if name not in below]
        root = named if named is not None else top[0] if len(top) == 1 else None
        if root not in self.nodes:
            raise Unreadable(f"{TREE} has no root: metadata.root is {named!r}")
        return str(root)

    def _text(self, node: ClaimedNode) -> str:
        if node.level not in FOLDERS:
            raise Unreadable(f"{node.path}: there is no level {node.level!r}")
        parts = PurePosixPath(node.path).parts
        if len(parts) != 2 or parts[0] != FOLDERS[node.level] or not parts[1].endswith(".py"):
            raise Unreadable(f"{node.path}: not a file of {FOLDERS[node.level]}")
        kept = self.metadata.get("levels")
        level_left_out = (kept is not None and node.level not in kept) or not (
            self.folder / parts[0]
        ).exists()
        if level_left_out and node.step and not (self.folder / node.path).exists():
            return self._read(f"{node.step}/original.py")  # the only copy
        return self._read(node.path)

    def _walk(self) -> None:
        """Check that every node is reachable and that there are no cycles."""
        seen: set[str] = set()
        way: list[tuple[str, tuple[str, ...]]] = [(self.root, ())]
        while way:
            name, above = way.pop()
            if name not in self.nodes:
                raise Unreadable(f"{above[-1]} has a child {name}, which is no node")
            if name in above:
                raise Unreadable(f"{name} is below itself")
            if name not in seen:
                seen.add(name)
                way += [(child, (*above, name)) for child in self.nodes[name].children]
        self.faults += [f"{name} is not part of the root" for name in self.nodes if name not in seen]

    def _levels(self) -> None:
        for name, node in self.nodes.items():
            if not node.children and node.level != "kernel":
                self.faults.append(f"{name} is a {node.level} without children: only kernels are leaves")
            if node.children and node.level == "kernel":
                self.faults.append(f"{name} is a kernel with children")
        levels = Counter(node.level for node in self.nodes.values())
        said = {"total_components": len(self.nodes), "unique_kernels": levels["kernel"]}
        self.faults += [
            f"{TREE} says {name} {self.metadata[name]!r}, there are {count}"
            for name, count in said.items()
            if self.metadata.get(name, count) != count
        ]
        by_level = self.metadata.get("by_level")
        if by_level and by_level != {level: levels[level] for level in by_level}:
            self.faults.append(f"{TREE} says by_level {by_level}, there are {dict(levels)}")
        paths = [node.path for node in self.nodes.values()]
        self.faults += sorted({f"{path} is the file of two nodes" for path in paths if paths.count(path) > 1})
        on_disk = [
            f"{f}/{file.name}" for f in FOLDERS.values() for file in sorted((self.folder / f).glob("*.py"))
        ]
        self.faults += [f"{path} is no node's file" for path in on_disk if path not in paths]

    def _steps(self) -> list[Claim]:
        folders = sorted(p.name for p in (self.folder / "steps").glob("*") if p.is_dir())
        claims, used = [], set()
        for name, node in self.nodes.items():
            if not node.children or (name == self.root and self._is_single()):
                continue
            original = self.texts[name]
            step = PurePosixPath(node.step).name if node.step else self._step_of(name, folders)
            if step is None or step not in folders:
                self.faults.append(f"{name} has children and no step")
                continue
            used.add(step)
            try:
                claims.append(self._step(f"steps/{step}", node, original))
            except Unreadable as error:
                folder = self.folder / "steps" / step
                claims.append(
                    Claim(f"steps/{step}", folder, original, {}, "refactored.py", {}, [str(error)], node)
                )
        self.faults += [f"steps/{step} is no node's step" for step in folders if step not in used]
        return sorted(claims, key=lambda claim: _number(claim.name))

    def _is_single(self) -> bool:
        """Whether the whole is one kernel.

        Then the composition, which has one part, proves all that a step could.
        """
        children = self.nodes[self.root].children
        return not children or (len(children) == 1 and self.nodes[children[0]].level == "kernel")

    def _step_of(self, name: str, folders: list[str]) -> str | None:
        """Find a node's step in a tree that does not record it."""
        texts = {self.texts[name], self.source} if name == self.root else {self.texts[name]}
        return next((f for f in folders if self._read(f"steps/{f}/original.py") in texts), None)

    def _step(self, step: str, node: ClaimedNode, original: str) -> Claim:
        refactored, violations = self._read(f"{step}/refactored.py"), []
        given = self._read(f"{step}/original.py")
        if given != original:
            source = given == self.source and node is self.nodes[self.root]
            violations.append(
                f"original.py is the source and {node.path} another file, which nothing proves"
                if source
                else "original.py is not the node's file"
            )
        children = {self.nodes[child].module: child for child in node.children}
        found = {file.stem: file.name for file in (self.folder / step / "children").glob("*.py")}
        violations += [
            f"children/{found[name]} is no child of the node" for name in sorted(set(found) - set(children))
        ]
        violations += [f"children/{name}.py is missing" for name in sorted(set(children) - set(found))]
        files = {"refactored.py": refactored}
        for name in sorted(set(children) & set(found)):
            text = self._read(f"{step}/children/{name}.py")
            files[f"children/{name}.py"] = text
            if text != self.texts[children[name]]:
                violations.append(f"children/{name}.py is not the file of the tree")
            violations += [f"children/{name}.py: {said}" for said in child_violations(text)]
            if same_class(original, text, str(self.metadata.get("model_name"))):
                violations.append(f"children/{name}.py is the original")
            if computes_nothing(text):
                violations.append(f"children/{name}.py computes nothing")
        parent = Parent(refactored, "children")
        violations += [f"refactored.py: {said}" for said in parent.violations]
        violations += _imports(parent, set(children))
        for one in node.instances:
            if one.attribute is None:  # the tree does not record it
                continue
            has = parent.imported.get(parent.built.get(one.attribute, ""))
            if one.child not in self.nodes or has != self.nodes[one.child].module:
                violations.append(f"{one.attribute} is {has}, the tree says {one.child}")
        return Claim(
            step,
            self.folder / step,
            original,
            files,
            "refactored.py",
            self._map(step, violations),
            violations,
            node,
            made_of=_made_of(parent, children),
            made_with=parent.arguments,
        )

    def _composition(self) -> Claim:
        code, violations = self._read("verification/composition_test.py"), []
        leaves = {node.module: name for name, node in self.nodes.items() if not node.children}
        files = {"verification/composition_test.py": code}
        single = self._is_single()
        for module, name in leaves.items():
            files[f"{KERNELS}/{module}.py"] = self.texts[name]
            violations += [f"{KERNELS}/{module}.py: {said}" for said in self._checked.get(name, ())]
            if not single and same_class(self.source, self.texts[name], str(self.metadata.get("model_name"))):
                violations.append(f"{KERNELS}/{module}.py is the original")
        parent = Parent(code, KERNELS)
        self.faults += self._wrong_counts(parent, leaves)
        violations += [f"composition_test.py: {said}" for said in parent.violations]
        violations += _imports(parent, set(leaves))
        weight_map = self._map("verification", violations)
        return Claim(
            "composition", self.folder / "verification", self.source, files, "verification/composition_test.py",
            weight_map, violations, self.nodes[self.root], single, self.source == self.texts[self.root],
            _made_of(parent, leaves), parent.arguments,
        )  # fmt: skip

    def _wrong_counts(self, parent: Parent, leaves: dict[str, str]) -> list[str]:
        """Check that each kernel's count equals the number of times the composition calls it."""
        calls: Counter[str] = Counter()
        for attribute, name in _made_of(parent, leaves).items():
            calls[name] += parent.calls[attribute]
        said = {name: self.nodes[name].instance_count for name in leaves.values()}
        return [
            f"{name} is used {calls[name]} times, the tree says {count}"
            for name, count in said.items()
            if count is not None and count != calls[name]
        ]

    def _map(self, folder: str, violations: list[str]) -> dict[str, str]:
        path = f"{folder}/weight_map.json"
        try:
            found = json.loads(self._read(path))
            return msgspec.convert(found["refactored_to_original"], dict[str, str])
        except (ValueError, KeyError, TypeError, RecursionError, Unreadable) as error:
            violations.append(f"weight_map.json is no weight map: {' '.join(str(error).split())[:200]}")
            return {}


def _made_of(parent: Parent, nodes: dict[str, str]) -> dict[str, str]:
    """The node of each attribute; `nodes` is keyed by module."""
    modules = {attribute: parent.imported[alias] for attribute, alias in parent.built.items()}
    return {attribute: nodes[module] for attribute, module in modules.items() if module in nodes}


def _imports(parent: Parent, wanted: set[str]) -> list[str]:
    imported = set(parent.imported.values())
    return [
        *(f"the parent imports {name}, which is no child" for name in sorted(imported - wanted)),
        *(f"the parent does not use its child {name}" for name in sorted(wanted - imported)),
    ]


def _number(name: str) -> tuple[int, str]:
    digits = name.rpartition("/")[2].removeprefix("step_").partition("_")[0]
    return int(digits) if digits.isdigit() else 0, name
