"""What a module's `forward` reaches in its source text: layers, operations, loops, conditions on data."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from kernelmill.problems.definitions import (
    Definitions,
    Function,
    Param,
    in_text_order,
    is_self,
    is_super,
    params_of,
    text_of,
)

_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.Pow: "**", ast.MatMult: "@", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
    ast.LShift: "<<", ast.RShift: ">>", ast.USub: "-", ast.Invert: "~", ast.Lt: "<", ast.LtE: "<=",
    ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip

# Attributes that do not read a tensor's values.
_STATIC_ATTRIBUTES = {"shape", "ndim", "dtype", "device", "layout", "is_cuda", "training", "requires_grad"}
_STATIC_METHODS = {
    "size", "dim", "ndimension", "numel", "nelement", "stride", "element_size", "get_device",
    "is_floating_point", "is_complex", "is_contiguous", "type", "keys",
}  # fmt: skip
_STATIC_CALLS = {"len", "isinstance", "issubclass", "hasattr", "callable", "type", "id"}
_STATIC_ANNOTATIONS = {"int", "bool", "str", "float"}
# Methods that compute nothing on tensors: the above, those of Python's containers, and a module's own.
_NO_OPERATIONS = _STATIC_METHODS | {
    "append", "extend", "insert", "update", "items", "get", "format", "join", "forward", "apply",
}  # fmt: skip
_OPERATION_ATTRIBUTES = {"T", "mT", "H", "mH"}


class Layer(msgspec.Struct, frozen=True):
    """A `torch.nn` constructor called while a module is built, such as `nn.Linear` with `d, 4 * d`."""

    name: str
    arguments: str
    attribute: str | None
    owner: str


class Reached:
    """Walks from the entry point to every class and function defined here that it builds or calls."""

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions
        self.layers: list[Layer] = []
        self.operations: dict[str, int] = {}
        self.has_loops = False
        self.has_data_dependent_ifs = False
        self._seen: set[tuple[str, int]] = set()
        self._todo: list[tuple[str, Function, str | None]] = []

    def enter_class(self, name: str) -> None:
        methods = self._definitions.methods(name)
        for phase, method in (("build", "__init__"), ("run", "forward")):
            if method in methods:
                self._add(phase, methods[method], name)

    def finish(self) -> None:
        for phase, function, owner in self._todo:  # grows during the loop
            if phase == "build":
                self._build(function, owner)
            else:
                self._run(function, owner)

    def _add(self, phase: str, function: Function, owner: str | None) -> None:
        # Keyed by owner as well: an inherited method reaches other methods in another class.
        key = (f"{phase}:{owner}", id(function))
        if key not in self._seen:
            self._seen.add(key)
            self._todo.append((phase, function, owner))

    def _follow(self, node: ast.AST, phase: str, owner: str | None) -> bool:
        """Record what a name or attribute refers to, if that is defined here."""
        defined = self._definitions
        if isinstance(node, ast.Name):
            if node.id in defined.functions:
                self._add(phase, defined.functions[node.id], None)
            elif node.id in defined.classes and node.id != owner:
                self.enter_class(node.id)
            else:
                return False
            return True
        if not isinstance(node, ast.Attribute):
            return False
        if isinstance(node.value, ast.Name) and node.value.id in defined.classes:
            target = node.value.id
            self._add_method(phase, target, "forward" if node.attr == "apply" else node.attr, target)
            return True
        if owner is None:
            return False
        if is_self(node.value):
            return self._add_method(phase, owner, node.attr, owner)
        if is_super(node.value):
            return any(
                self._add_method(phase, base.id, node.attr, owner)
                for base in defined.classes[owner].bases
                if isinstance(base, ast.Name)
            )
        return False

    def _add_method(self, phase: str, holder: str, method: str, owner: str) -> bool:
        function = self._definitions.methods(holder).get(method)
        if function is not None:
            self._add(phase, function, owner)
        return function is not None

    def _build(self, function: Function, owner: str | None) -> None:
        attributes: dict[int, str] = {}
        for node in in_text_order(*function.body):
            if isinstance(node, ast.Assign | ast.AnnAssign):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                if isinstance(target, ast.Attribute) and is_self(target.value) and node.value is not None:
                    attributes[id(node.value)] = target.attr
            elif isinstance(node, ast.Call):
                full = self._definitions.resolve(node.func) or ""
                name = full.removeprefix("torch.nn.").removeprefix("modules.")
                if name != full and name.rpartition(".")[2][:1].isupper():
                    arguments = ", ".join(text_of(a) for a in [*node.args, *node.keywords])
                    self.layers.append(
                        Layer(f"nn.{name}", arguments, attributes.get(id(node)), owner or function.name)
                    )
            else:
                self._follow(node, "build", owner)

    def _run(self, function: Function, owner: str | None) -> None:
        values = {p.name for p in params_of(function) if not _is_setting(p)}
        for node in in_text_order(*function.body):
            if isinstance(node, ast.Call):
                self._call(node.func)
            elif isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant):
                pass  # a negative number, not an operation
            elif isinstance(node, ast.BinOp | ast.UnaryOp | ast.AugAssign):
                self._count(_OPERATORS.get(type(node.op)))
            elif isinstance(node, ast.Compare):
                for op in node.ops:
                    self._count(_OPERATORS.get(type(op)))
            elif isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                _assign(targets, node.value, values)
            elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
                self.has_loops = True
                _assign([node.target], node.iter, values)
            elif not self._follow(node, "run", owner) and isinstance(node, ast.Attribute):
                self._count(f".{node.attr}" if node.attr in _OPERATION_ATTRIBUTES else None)
            self.has_loops |= isinstance(node, ast.While)
            if isinstance(node, ast.If | ast.While | ast.IfExp):
                self.has_data_dependent_ifs |= _looks_at_values(node.test, values)

    def _call(self, func: ast.expr) -> None:
        full = self._definitions.resolve(func)
        if full is not None:
            for prefix, short in (("torch.nn.functional.", "F."), ("torch.nn.", "nn.")):
                if full.startswith(prefix):
                    full = short + full.removeprefix(prefix)
            self._count(full)
        elif isinstance(func, ast.Attribute) and not self._is_ours(func):
            self._count(f".{func.attr}")

    def _is_ours(self, func: ast.Attribute) -> bool:
        """Whether a call is to a layer (in `layers`) or to code walked anyway, not to a tensor method."""
        holder = func.value
        is_class = isinstance(holder, ast.Name) and holder.id in self._definitions.classes
        return func.attr in _NO_OPERATIONS or is_class or is_self(holder) or is_super(holder)

    def _count(self, operation: str | None) -> None:
        if operation is not None:
            self.operations[operation] = self.operations.get(operation, 0) + 1


def _is_setting(param: Param) -> bool:
    """Whether a parameter is a flag or a size rather than a tensor, by its annotation or its default."""
    if param.annotation is not None:
        return param.annotation in _STATIC_ANNOTATIONS
    return param.default is not None and param.default != "None"


def _assign(targets: Sequence[ast.expr], value: ast.expr | None, values: set[str]) -> None:
    names = {node.id for node in in_text_order(*targets) if isinstance(node, ast.Name)}
    if value is not None and _looks_at_values(value, values):
        values |= names
    else:
        values -= names


def _looks_at_values(expression: ast.expr, values: set[str]) -> bool:
    """Whether an expression may depend on the contents of `values`, not only on their shape or type."""
    stack: list[ast.AST] = [expression]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Name) and node.id in values:
            return True
        if isinstance(node, ast.Attribute) and node.attr in _STATIC_ATTRIBUTES:
            continue
        if isinstance(node, ast.Compare) and all(isinstance(op, ast.Is | ast.IsNot) for op in node.ops):
            continue
        if isinstance(node, ast.Call):
            func = node.func
            if isinstance(func, ast.Attribute) and func.attr in _STATIC_METHODS:
                continue
            if isinstance(func, ast.Name) and func.id in _STATIC_CALLS:
                continue
        stack.extend(ast.iter_child_nodes(node))
    return False
