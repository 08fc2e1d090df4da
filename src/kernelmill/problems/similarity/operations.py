"""The operations that each function of a module computes, as a list.

An operation is what the function uses from elsewhere: an imported name in full (`torch.relu`), a layer by its
constructor (`self.fc` is a `torch.nn.Linear`), a method or attribute of a value, a keyword, an operator, a
string. Names that the module defines and numbers are left out, so renaming cannot change the list. Operations
are in the order of computation: `y = f(x); return g(y)` and `return g(f(x))` give the same list. It reads
names and does not follow values.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from kernelmill.problems.definitions import is_self, is_super

Function = ast.FunctionDef | ast.AsyncFunctionDef
_BUILTINS = frozenset(name for name in dir(builtins) if name.islower())
_TELLING = frozenset(
    {ast.For, ast.While, ast.If, ast.IfExp, ast.Subscript, ast.ListComp, ast.GeneratorExp, ast.DictComp}
)


def operations(tree: ast.Module, removed: Collection[ast.stmt] = ()) -> Iterator[list[str]]:
    """Yield the operations of every function and of module-level statements, without `removed` statements.

    Raises RecursionError on code that is nested too deeply.
    """
    return _Writer(imports(tree), removed).functions(tree.body)


_LEAVES = {
    "ctx",
    "op",
    "ops",
    "id",
    "attr",
    "arg",
    "name",
    "module",
    "level",
    "annotation",
    "returns",
    "type_comment",
    "kind",
}
_inside: dict[type[ast.AST], tuple[str, ...]] = {}


def nodes(root: ast.AST) -> list[ast.AST]:
    """List every node except operators, contexts and annotations, outer before inner.

    It is three times as fast as `ast.walk`.
    """
    found = [root]
    for node in found:  # grows during the loop
        kind = node.__class__
        fields = _inside.get(kind)
        if fields is None:
            fields = _inside[kind] = tuple(field for field in kind._fields if field not in _LEAVES)
        for field in fields:
            value = getattr(node, field, None)
            if value.__class__ is list:
                found += [item for item in value if isinstance(item, ast.AST)]
            elif isinstance(value, ast.AST):
                found.append(value)
    return found


def imports(tree: ast.Module) -> dict[str, str]:
    """Map each imported name to its full name."""
    found: dict[str, str] = {}
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.partition(".")[0]
                found[alias.asname or root] = alias.name if alias.asname else root
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                found[alias.asname or alias.name] = f"{node.module or ''}.{alias.name}"
    return found


class _Writer:
    def __init__(self, imported: dict[str, str], removed: Collection[ast.stmt]) -> None:
        self._imports = imported
        self._removed = set(removed)
        self._layers: dict[str, str] = {}
        """The attributes of `self` in the current class; empty for those whose class the module defines."""
        self._own: set[str] = set()
        """Names that the current function defines."""
        self._out: list[str] = []

    def functions(self, body: Iterable[ast.stmt]) -> Iterator[list[str]]:
        for node in body:
            if node in self._removed or isinstance(node, ast.Import | ast.ImportFrom):
                continue
            if isinstance(node, ast.ClassDef):
                outer, self._layers = self._layers, self._layers_of(node)
                yield from self.functions(node.body)
                self._layers = outer
                continue
            self._out = []
            self._own = set()
            for part in nodes(node):
                if part.__class__ is ast.Name and part.ctx.__class__ is ast.Store:
                    self._own.add(part.id)
                elif part.__class__ is ast.arg:
                    self._own.add(part.arg)
            self._node(node)
            if self._out:
                yield self._out

    def _layers_of(self, node: ast.ClassDef) -> dict[str, str]:
        found: dict[str, set[str]] = {}
        for part in nodes(node):
            if isinstance(part, ast.Assign) and isinstance(part.value, ast.Call):
                made = self._dotted(part.value.func)
                for target in part.targets:
                    if made is not None and isinstance(target, ast.Attribute) and is_self(target.value):
                        found.setdefault(target.attr, set()).add(made)
            elif isinstance(part, ast.Attribute):
                if part.ctx.__class__ is ast.Store and is_self(part.value):
                    found.setdefault(part.attr, set())
            elif isinstance(part, Function):
                found.setdefault(part.name, set())
        # If it is constructed in several ways, their order in the text must not matter.
        return {name: min(ways, default="") for name, ways in found.items()}

    def _dotted(self, node: ast.AST) -> str | None:
        """Return the full name of something imported; None for anything else."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if isinstance(node, ast.Name) and node.id in self._imports and node.id not in self._own:
            return ".".join([self._imports[node.id], *reversed(parts)])
        return None

    def _node(self, node: ast.AST) -> None:
        if node in self._removed:
            return
        write = _WRITERS.get(node.__class__)
        if write is not None:
            write(self, node)
            return
        for part in ast.iter_child_nodes(node):
            self._node(part)
        if node.__class__ in _TELLING:
            self._out.append(node.__class__.__name__)

    def _operator(self, node: ast.BinOp | ast.AugAssign | ast.UnaryOp | ast.BoolOp) -> None:
        for part in ast.iter_child_nodes(node):
            if part is not node.op:
                self._node(part)
        self._out.append(node.op.__class__.__name__)

    def _compare(self, node: ast.Compare) -> None:
        self._all((node.left, *node.comparators))
        self._out += [operator.__class__.__name__ for operator in node.ops]

    def _nothing(self, node: ast.AST) -> None:
        """Ignore a node that computes nothing."""

    def _all(self, nodes: Iterable[ast.AST | None]) -> None:
        for node in nodes:
            if node is not None:
                self._node(node)

    def _name(self, node: ast.Name) -> None:
        if node.id in self._own:
            return
        if node.id in self._imports:
            self._out.append(self._imports[node.id])
        elif node.id in _BUILTINS:
            self._out.append(node.id)

    def _attribute(self, node: ast.Attribute) -> None:
        dotted = self._dotted(node)
        if dotted is not None:
            self._out.append(dotted)
        elif is_self(node.value):
            if token := self._layers.get(node.attr, f".{node.attr}"):
                self._out.append(token)
        elif not is_super(node.value):
            self._node(node.value)
            self._out.append(f".{node.attr}")

    def _call(self, node: ast.Call) -> None:
        if is_super(node):
            return
        method = node.func if isinstance(node.func, ast.Attribute) else None
        on_value = (
            method is not None
            and not is_self(method.value)
            and not is_super(method.value)
            and self._dotted(method) is None
        )
        if method is not None and on_value:
            self._node(method.value)
        self._all(node.args)
        known = len(self._out)
        self._all(keyword.value for keyword in node.keywords)
        before = len(self._out)
        if method is not None and on_value:
            self._out.append(f".{method.attr}()")
        else:
            self._node(node.func)
        if len(self._out) > before:  # for a function of the module itself, keywords are its own names
            self._out[known:known] = [f"{keyword.arg}=" for keyword in node.keywords if keyword.arg]

    def _constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str | bool | None):
            self._out.append(repr(node.value))

    def _expression(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring or a bare string
            self._node(node.value)

    def _assign(self, node: ast.Assign) -> None:
        self._node(node.value)
        for target in node.targets:
            if not isinstance(target, ast.Attribute):  # `self.fc = …` is described by its right-hand side
                self._node(target)

    def _annotated(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._node(node.value)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._all(node.args.defaults)
        self._all(node.args.kw_defaults)
        self._all(node.body)

    def _lambda(self, node: ast.Lambda) -> None:
        self._node(node.body)


_WRITERS: dict[type[ast.AST], Callable[[_Writer, Any], None]] = {
    ast.Name: _Writer._name,
    ast.Attribute: _Writer._attribute,
    ast.Call: _Writer._call,
    ast.Constant: _Writer._constant,
    ast.Expr: _Writer._expression,
    ast.Assign: _Writer._assign,
    ast.AnnAssign: _Writer._annotated,
    ast.FunctionDef: _Writer._function,
    ast.AsyncFunctionDef: _Writer._function,
    ast.Lambda: _Writer._lambda,
    ast.Compare: _Writer._compare,
    **dict.fromkeys((ast.BinOp, ast.AugAssign, ast.UnaryOp, ast.BoolOp), _Writer._operator),
    # Checks and error messages are not part of the computation.
    **dict.fromkeys(
        (ast.Assert, ast.Raise, ast.Import, ast.ImportFrom, ast.Load, ast.Store, ast.Pass), _Writer._nothing
    ),
}
