"""Check that an emitted file always computes the same function: for any input, on any device, on every call.

The checks use the syntax tree, and nothing is run; torch is only asked which of its functions return tensors.
A run shows one code path, so a file may have only one: no branches, no Python values except constants and
sizes, no state that outlives a call, no access to the device, the dtype, autograd mode or the seed.
Statements copied verbatim from the source (a module that is kept whole) are the author's and may do anything.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

import torch
from torch import nn

from kernelmill.decompose.prove.rules.child import aliases
from kernelmill.decompose.prove.rules.syntax import at_line, dotted, is_constant, parse, root_name, shown
from kernelmill.decompose.prove.rules.torch_names import TAKE_SIZES, find, gives_tensors, is_plain

_SIZES = {"shape", "ndim"}
_OF_RESULTS = {"values", "indices"}
_VIEWS = {"T", "mT", "H", "mH", "real", "imag"}
_PYTHON = {
    "int", "float", "len", "min", "max", "abs", "sum", "round", "range", "tuple", "list", "enumerate", "zip",
}  # fmt: skip
"""Builtins that map Python values to Python values."""
_BRANCHES = (
    ast.If, ast.IfExp, ast.While, ast.Match, ast.Try, ast.TryStar, ast.BoolOp, ast.Assert, ast.Raise, ast.With, ast.AsyncWith,
    ast.AsyncFor, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp,
)  # fmt: skip
_STATE = (
    ast.Global,
    ast.Nonlocal,
    ast.Lambda,
    ast.NamedExpr,
    ast.Yield,
    ast.YieldFrom,
    ast.Await,
    ast.Delete,
)
_OF_MODULES = set(dir(nn.Module)) - {"__init__", "forward", "extra_repr"}
_NOT_LOOKED_AT = ("run_tests",)


def single_path_violations(code: str, source: str) -> list[str]:
    """Why the file may compute something else elsewhere.

    Statements copied from the source are not checked.
    """
    tree, original = parse(code), parse(source)
    if isinstance(tree, str):
        return [tree]
    authors = {ast.dump(node) for node in original.body} if not isinstance(original, str) else set()
    checked = [node for node in tree.body if ast.dump(node) not in authors]
    reading = _PathReading(tree, checked)
    return [at_line(at, what) for node in checked for at, what in reading.top(node)]


def has_authors_classes(code: str, source: str) -> bool:
    """Whether the file contains a class of the source verbatim."""
    tree, original = parse(code), parse(source)
    if isinstance(tree, str) or isinstance(original, str):
        return False
    authors = {ast.dump(node) for node in original.body if isinstance(node, ast.ClassDef)}
    return any(ast.dump(node) in authors for node in tree.body)


def reads_sizes(code: str) -> bool:
    """Whether the model's Python code reads a tensor's size."""
    tree = parse(code)
    if isinstance(tree, str):
        return False
    return any(
        isinstance(node, ast.Attribute) and node.attr in {*_SIZES, "size"}
        for top in tree.body
        if not (isinstance(top, ast.FunctionDef) and top.name in _NOT_LOOKED_AT)
        for node in ast.walk(top)
    )


Wrong = Iterator[tuple[ast.AST, str]]


class _PathReading:
    def __init__(self, tree: ast.Module, checked: list[ast.stmt]) -> None:
        """`checked` are the statements that are not copied from the source."""
        nodes = list(ast.walk(tree))
        self._modules = dict(aliases(nodes))
        self._imported = {
            name.asname or name.name: f"{node.module}.{name.name}"
            for node in nodes
            if isinstance(node, ast.ImportFrom)
            for name in node.names
        }
        self._own = {
            node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)
        } - set(_NOT_LOOKED_AT)
        self._numbers = set(_given_numbers(tree))
        self._classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
        self._authors = self._classes - {node.name for node in checked if isinstance(node, ast.ClassDef)}
        self._layers = self._new_layers([node for one in checked for node in ast.walk(one)])

    def top(self, node: ast.stmt) -> Wrong:
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant()) | ast.Pass():
                return
            case ast.FunctionDef(name=name) if name in _NOT_LOOKED_AT:
                return
            case ast.If(test=test, orelse=[]) if ast.unparse(test) == "__name__ == '__main__'":
                return
            case ast.FunctionDef():
                yield from self._function(node)
            case ast.ClassDef(body=body, decorator_list=decorators):
                yield from ((one, f"a decorated class: {node.name}") for one in decorators[:1])
                for one in body:
                    yield from self.top(one)
                    if isinstance(one, ast.FunctionDef) and one.name in _OF_MODULES:
                        yield one, f"it replaces a method of nn.Module: {one.name}"
            case ast.Assign(value=value) | ast.AnnAssign(value=value) if value is None or is_constant(value):
                return
            case _:
                yield node, f"state or code outside of functions: {shown(node)}"

    def _function(self, node: ast.FunctionDef) -> Wrong:
        making = node.name == "__init__"
        for one in node.decorator_list:
            if shown(one) != "staticmethod":
                yield one, f"{node.name} is decorated"
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None and not is_constant(default):
                yield default, f"a default that can be changed: {shown(default)}"
        own = set(self._numbers) if node.name == "forward" else set()
        for statement in node.body:
            yield from self._statement(statement, own, making)

    def _statement(self, node: ast.stmt, numbers: set[str], making: bool) -> Wrong:
        """Check a statement. `numbers` are the variables that hold Python values.

        `making`: the statement is in a constructor, where only constants occur.
        """
        match node:
            case ast.Expr(value=value) | ast.Return(value=value):
                yield from self._expression(value, numbers, making) if value is not None else ()
            case ast.Assign(value=value, targets=targets):
                yield from self._expression(value, numbers, making)
                for target in targets:
                    yield from self._target(target, value, numbers, making)
            case (
                ast.AnnAssign(value=ast.expr() as value, target=target)
                | ast.AugAssign(value=value, target=target)
            ):
                yield from self._expression(value, numbers, making)
                yield from self._target(target, value, numbers, making)
            case ast.For(iter=steps, target=target, body=body, orelse=[]) if (
                making or root_name(steps) == "self"
            ):
                yield from self._expression(steps, numbers, making)
                yield from self._target(target, steps, numbers, making)
                for one in body:
                    yield from self._statement(one, numbers, making)
            case ast.If(test=test, body=body, orelse=rest) if making:
                yield from self._expression(test, numbers, making)
                for one in [*body, *rest]:
                    yield from self._statement(one, numbers, making)
            case ast.Pass():
                return
            case _:
                yield node, f"a branch or state: {shown(node)}"

    def _target(self, target: ast.expr, value: ast.expr, numbers: set[str], making: bool) -> Wrong:
        match target:
            case ast.Name(id=name):
                (numbers.add if self._is_number(value, numbers) else numbers.discard)(name)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                for part in parts:
                    yield from self._target(part, value, numbers, making)
            case ast.Attribute(value=ast.Name(id="self")) if making:
                return
            case ast.Attribute() if making and self._is_tie(target, value):
                return
            case ast.Subscript(value=ast.Name(), slice=index):
                yield from self._expression(index, numbers, making)
            case _:
                yield target, f"state that outlives a call: {shown(target)}"

    def _is_tie(self, target: ast.Attribute, value: ast.expr) -> bool:
        """Whether a constructor ties weights: `self.head.weight = self.embedding.weight`.

        A constructor may set the state of the object under construction: its own attributes, and those of a
        layer that it has just made. Anything else may be shared with other objects (a class, through
        `self.head.__class__` or `self.kind = Kind`), and would count how many were built. So both paths start
        at an attribute that only ever holds new layers. The target is an attribute of that layer, or, if the
        layer's class is the author's, of a module inside it.
        """
        to, of = _path(target), _path(value)
        if not to or not of or to[0] not in self._layers or any(name.startswith("_") for name in (*to, *of)):
            return False
        inside = len(to) == 2 or self._layers[to[0]] in self._authors
        return inside and to[-1] not in {*_OF_MODULES, "forward"} and (len(of) == 1 or of[0] in self._layers)

    def _new_layers(self, nodes: list[ast.AST]) -> dict[str, str]:
        """The attributes of `self` that every assignment sets to a new layer, and the layer's class."""
        stores = Counter(
            node.attr
            for node in nodes
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_weight(node)
        )
        made: dict[str, list[str]] = {}
        for node in nodes:
            match node:
                case ast.Assign(
                    targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=ast.Call(func=func)
                ) if self._is_layer(func):
                    made.setdefault(name, []).append(shown(func))
        return {
            name: kinds[0]
            for name, kinds in made.items()
            if len(kinds) == stores[name] and len(set(kinds)) == 1
        }

    def _is_layer(self, func: ast.expr) -> bool:
        """Whether a call of it makes a module: it is a class of torch or of this file."""
        if isinstance(func, ast.Name) and func.id in self._classes:
            return True
        place = self._imported.get(func.id) if isinstance(func, ast.Name) else self._dotted(func)
        found = find(place) if place is not None else None
        return isinstance(found, type) and issubclass(found, nn.Module)

    def _expression(self, node: ast.AST, numbers: set[str], making: bool) -> Wrong:
        match node:
            case ast.IfExp() | ast.BoolOp() | ast.Compare() if making:
                pass
            case ast.Compare(left=left, comparators=rest):
                if all(self._is_number(one, numbers) for one in (left, *rest)):
                    yield node, f"a comparison of sizes: {shown(node)}"
                if any(isinstance(op, ast.In | ast.NotIn | ast.Is | ast.IsNot) for op in node.ops):
                    yield node, f"a branch: {shown(node)}"
            case ast.UnaryOp(op=ast.Not()) if not making:
                yield node, f"a branch: {shown(node)}"
            case ast.ListComp() | ast.GeneratorExp() if making:
                pass
            case _ if isinstance(node, _BRANCHES):
                yield node, f"a branch: {shown(node)}"
            case _ if isinstance(node, _STATE):
                yield node, f"code or state of another kind: {shown(node)}"
            case ast.Subscript(value=ast.List() | ast.Tuple() | ast.Dict(), slice=index) if not is_constant(
                index
            ):
                yield node, f"a choice by a number: {shown(node)}"
            case ast.BinOp(left=left, right=right) if not self._is_number(node, numbers) and any(
                self._is_step(one, numbers) for one in (left, right)
            ):
                yield node, f"a step in sizes is used as a number: {shown(node)}"
            case ast.Call(func=func):
                yield from self._call(node, func)
                takes_sizes = making or _last(func) in TAKE_SIZES
                if isinstance(func, ast.Attribute) and self._dotted(func) is None:
                    yield from self._expression(func.value, numbers, making)
                for given in [*node.args, *(keyword.value for keyword in node.keywords)]:
                    if not takes_sizes and self._is_step(given, numbers):
                        yield given, f"a step in sizes is used as a number: {shown(node)}"
                    yield from self._argument(given, numbers, making)
                return
            case ast.Attribute(attr=name) if not self._may_read(node):
                yield node, f"it asks for {name}: {shown(node)}"
        for one in ast.iter_child_nodes(node):
            yield from self._expression(one, numbers, making)

    def _argument(self, node: ast.expr, numbers: set[str], making: bool) -> Wrong:
        match node:
            case ast.Attribute(value=of, attr="device" | "dtype"):  # passed on, not inspected
                yield from self._expression(of, numbers, making)
            case _:
                yield from self._expression(node, numbers, making)

    def _call(self, node: ast.Call, func: ast.expr) -> Wrong:
        match func:
            case ast.Name(id=name) if name in self._own or name in _PYTHON | {"super", "slice"}:
                return
            case ast.Name(id=name) if name in self._imported:
                fine = gives_tensors(self._imported[name])
            case ast.Attribute(attr=name) if (place := self._dotted(func)) is not None:
                fine = gives_tensors(place)
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super"))):
                return
            case ast.Attribute(attr=name) if hasattr(torch.Tensor, name):
                fine = is_plain(name) or _is_weight(func)
            case _:
                fine = isinstance(func, ast.Attribute | ast.Subscript) and root_name(func) == "self"
        if not fine:
            yield node, f"it calls what gives no tensor: {shown(func)}"

    def _may_read(self, node: ast.Attribute) -> bool:
        if (place := self._dotted(node)) is not None:
            kinds = (torch.dtype, torch.memory_format, torch.layout, float, int)
            return isinstance(find(place), kinds) or gives_tensors(place)
        if node.attr in _SIZES | _VIEWS | _OF_RESULTS or isinstance(node.ctx, ast.Store):
            return True
        if isinstance(node.value, ast.Name) and node.value.id in self._own:
            return True  # a class constant: `Way.UP`
        if isinstance(node.value, ast.Call) and not hasattr(torch.Tensor, node.attr):
            return True  # one of several results: `torch.linalg.svd(x).Vh`
        return _is_weight(node) or (root_name(node) == "self" and not hasattr(torch.Tensor, node.attr))

    def _dotted(self, node: ast.expr) -> str | None:
        return dotted(node, self._modules)

    def _is_step(self, node: ast.expr, numbers: set[str]) -> bool:
        """Whether it is computed from sizes with rounding, so that it may be a step function of the size."""
        if not self._is_number(node, numbers) or is_constant(node):
            return False
        return any(
            isinstance(one, ast.Call)
            or (isinstance(one, ast.BinOp) and isinstance(one.op, ast.FloorDiv | ast.Mod))
            or (isinstance(one, ast.Name) and one.id in numbers and one.id not in self._numbers)
            for one in ast.walk(node)
        )

    def _is_number(self, node: ast.expr, numbers: set[str]) -> bool:
        """Whether it is a Python value."""
        match node:
            case ast.Constant() | ast.Attribute(attr="shape" | "ndim"):
                return True
            case ast.Name(id=name):
                return name in numbers
            case ast.Call(func=ast.Attribute(attr="size")):
                return True
            case ast.Call(func=ast.Name(id=name)):
                return name in _PYTHON
            case ast.Subscript(value=value):
                return self._is_number(value, numbers)
            case ast.UnaryOp() | ast.BinOp() | ast.Compare() | ast.Tuple() | ast.List():
                parts = [one for one in ast.iter_child_nodes(node) if isinstance(one, ast.expr)]
                return all(self._is_number(part, numbers) for part in parts)
        return False


def _given_numbers(tree: ast.Module) -> Iterator[str]:
    """The arguments of `forward` that are numbers, judging by what `get_inputs` returns."""
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    forward, inputs = functions.get("forward"), functions.get("get_inputs")
    if forward is None or inputs is None or not isinstance(inputs.body[-1], ast.Return):
        return
    given = inputs.body[-1].value
    if isinstance(given, ast.List | ast.Tuple):
        for argument, value in zip(forward.args.args[1:], given.elts, strict=False):
            if is_constant(value):
                yield argument.arg


def _is_weight(node: ast.Attribute) -> bool:
    """Whether it is an attribute of `self`, even if it is named like one of a tensor: `self.data`."""
    return isinstance(node.value, ast.Name) and node.value.id == "self"


def _last(node: ast.expr) -> str:
    """The last part of a function's name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _path(node: ast.expr) -> list[str]:
    """The attribute path of an expression below `self`; empty if it is none."""
    match node:
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            return [name]
        case ast.Attribute(value=value, attr=name) if above := _path(value):
            return [*above, name]
    return []
