"""The normal form of a module's code: tokens that do not depend on the names it chooses.

A module is reduced to its classes and helper functions, without imports, docstrings, annotations,
`get_inputs` and the like. Every name that the module defines (classes, functions, parameters, variables,
attributes) is replaced by its order of appearance. Imported names are written in full (`nn.Linear` and
`torch.nn.Linear` are the same).

The tokens are the same in every process and under every Python version that parses the code, because datasets
are split by them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from typing import Any

from kernelmill.base.python_text import parse_module
from kernelmill.problems.definitions import CONVENTION_FUNCTIONS
from kernelmill.problems.similarity.statements import does_nothing, flat, is_plain_super

_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
_TOKEN = re.compile(r"\w+|[^\w\s]")


def normal_tokens(code: str) -> tuple[list[str], bool]:
    """Return the tokens of the normal form, and whether the code parsed.

    If it did not, the tokens are those of its text.
    """
    try:
        tree = parse_module(code)
        return normal_form(tree)[0], True
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _TOKEN.findall(code), False


def normal_form(tree: ast.Module, idle: Collection[ast.stmt] = ()) -> tuple[list[str], list[ast.stmt]]:
    """Return the tokens of a file, and the statements left out of them because no class needs them.

    `idle` are statements inside functions or classes to leave out too. Raises RecursionError on code that is
    nested too deeply.
    """
    tree.body = list(flat(tree.body))
    emitter = _Emitter(idle)
    return emitter.module(tree), emitter.unneeded


_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {}
"""The fields written for node types without their own method.

The context is left out: the position implies it.
"""
_LEFT_OUT = {"ctx", "annotation", "returns", "type_comment", "type_params", "kind", "type_ignores"}
_OPERATORS: dict[type[ast.AST], str] = {
    kind: kind.__name__
    for base in (ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
    for kind in base.__subclasses__()
}


class _Emitter:
    """Writes a syntax tree as tokens in one walk.

    Every node is bracketed, so that different trees give different tokens.
    """

    def __init__(self, idle: Collection[ast.stmt]) -> None:
        self._idle = frozenset(idle)
        self.unneeded: list[ast.stmt] = []
        self._out: list[str] = []
        self._renamed: list[int] = []
        """Positions of names that may be the module's own, which is known only at the end."""
        self._given: set[str] = set()
        self._imports: dict[str, str] = {}
        self._imported: set[str] = set()
        self._class_name = ""
        self._loads: set[str] = set()
        self._bound: set[str] = set()
        """The names that the current function reads (`_loads`), and those it binds."""

    def module(self, tree: ast.Module) -> list[str]:
        """Write the classes, then what they need of the rest.

        Shapes, seeds and helpers that only `get_inputs` uses are left out.
        """
        rest = []
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                self._class(node)
                self._loads.add(node.name)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                self._import(node)
            elif isinstance(node, ast.If) or (
                isinstance(node, _FUNCTION) and node.name in CONVENTION_FUNCTIONS
            ):
                self.unneeded.append(node)
            else:
                rest.append((node, _names_of(node)))
        if not self._out:
            # Without a class, the functions are the content of the file; without these, all of it is.
            functions = {node.name for node, _ in rest if isinstance(node, _FUNCTION)}
            self._loads = functions or set().union(*(names for _, names in rest))
        while needed := [part for part in rest if part[1] & self._loads - self._imported]:
            rest = [part for part in rest if part not in needed]
            self._body([node for node, _ in needed])
        self.unneeded += [node for node, _ in rest]
        self._rename()
        # A full name may be several tokens.
        return " ".join(self._out).split(" ") if self._out else []

    def _rename(self) -> None:
        """Number the module's own names in order of appearance, and write imported names in full."""
        # Callers outside the module use these names, so they stay.
        given = {
            name for name in self._given if name not in ("forward", "self") and not name.startswith("__")
        }
        order: dict[str, str] = {}
        out = self._out
        for at in self._renamed:
            name = out[at]
            dot, bare = (".", name[1:]) if name[0] == "." else ("", name)
            if bare in given:
                number = order.get(bare)
                if number is None:
                    number = order[bare] = f"n{len(order)}"
                out[at] = dot + number
            elif not dot:
                out[at] = self._imports.get(bare, bare)

    def _name(self, name: str) -> None:
        self._renamed.append(len(self._out))
        self._out.append(name)

    def _node(self, node: Any) -> None:
        write = _WRITERS.get(node.__class__)
        if write is not None:
            write(self, node)
        else:
            self._generic(node)

    def _generic(self, node: ast.AST) -> None:
        kind = node.__class__
        fields = _FIELDS.get(kind)
        if fields is None:
            fields = _FIELDS[kind] = tuple(field for field in kind._fields if field not in _LEFT_OUT)
        out = self._out
        out.append(kind.__name__)
        for field in fields:
            value = getattr(node, field, None)
            # Empty fields are not written, so that a field added by a later Python changes nothing.
            if value is None or value == []:
                continue
            out.append(field)
            if isinstance(value, list):
                self._all(value)
            elif isinstance(value, ast.AST):
                self._node(value)
            elif isinstance(value, str):
                self._name(value)
            else:
                out.append(_constant(value))
        out.append(";")

    def _all(self, nodes: list[Any]) -> None:
        for node in nodes:
            if isinstance(node, ast.AST):
                self._node(node)
            elif node is None:
                self._out.append("None")
            else:
                self._name(node)
            self._out.append(",")

    def _body(self, body: list[ast.stmt]) -> None:
        for node in body:
            self._node(node)

    def _class(self, node: ast.ClassDef) -> None:
        self._given.add(node.name)
        outer, self._class_name = self._class_name, node.name
        self._all(node.decorator_list)
        self._out.append("class")
        self._name(node.name)
        self._all(node.bases)
        self._all(node.keywords)
        self._out.append(":")
        self._body(node.body)
        self._out.append("end")
        self._class_name = outer

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if does_nothing(node, self._class_name):
            return
        self._given.add(node.name)
        self._bound.add(node.name)
        self._all(node.decorator_list)
        outer = self._loads, self._bound
        self._loads, self._bound = set(), set()
        self._out.append("def" if node.__class__ is ast.FunctionDef else "async")
        self._name(node.name)
        self._generic(node.args)
        self._out.append(":")
        self._body(node.body)
        self._out.append("end")
        free = self._loads - self._bound
        self._loads, self._bound = outer
        self._loads |= free

    def _arg(self, node: ast.arg) -> None:
        self._given.add(node.arg)
        self._bound.add(node.arg)
        self._name(node.arg)

    def _variable(self, node: ast.Name) -> None:
        if node.ctx.__class__ is ast.Load:
            self._loads.add(node.id)
        else:
            self._given.add(node.id)
            self._bound.add(node.id)
        self._name(node.id)

    def _attribute(self, node: ast.Attribute) -> None:
        value = node.value
        if node.ctx.__class__ is not ast.Load:
            self._given.add(node.attr)
        if value.__class__ is ast.Name and value.id == "self":
            # Only attributes of `self`: a tensor's method may share its name with one of the module's own.
            self._out.append("self")
            self._name("." + node.attr)
        else:
            self._node(value)
            self._out.append("." + node.attr)

    def _call(self, node: ast.Call) -> None:
        self._node(node.func)
        self._out.append("(")
        if not is_plain_super(node, self._class_name):
            self._all(node.args)
        for keyword in node.keywords:
            # A keyword argument of torch may share its name with one of the module's variables.
            self._out.append(f"{keyword.arg}=" if keyword.arg else "**")
            self._node(keyword.value)
            self._out.append(",")
        self._out.append(")")

    def _constant(self, node: ast.Constant) -> None:
        self._out.append(_constant(node.value))

    def _assign(self, node: ast.Assign) -> None:
        if node in self._idle:
            return
        for target in node.targets:
            self._node(target)
            self._out.append("=")
        self._node(node.value)
        self._out.append(";")

    def _annotated(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._node(node.target)
            self._out.append("=")
            self._node(node.value)
            self._out.append(";")

    def _expression(self, node: ast.Expr) -> None:
        if node.value.__class__ is not ast.Constant:  # a docstring or a bare string
            self._node(node.value)
            self._out.append(";")

    def _binary(self, node: ast.BinOp) -> None:
        self._out.append("[")
        self._node(node.left)
        self._out.append(_OPERATORS[node.op.__class__])
        self._node(node.right)
        self._out.append("]")

    def _operator(self, node: ast.AST) -> None:
        self._out.append(_OPERATORS[node.__class__])

    def _subscript(self, node: ast.Subscript) -> None:
        self._node(node.value)
        self._out.append("{")
        self._node(node.slice)
        self._out.append("}")

    def _tuple(self, node: ast.Tuple) -> None:
        self._out.append("(,")
        self._all(node.elts)
        self._out.append(")")

    def _return(self, node: ast.Return) -> None:
        self._out.append("return")
        if node.value is not None:
            self._node(node.value)
        self._out.append(";")

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        """Record the full name of each imported name. The import itself is not written: it may be unused."""
        for alias in node.names:
            self._imported.add(alias.asname or alias.name.partition(".")[0])
            if isinstance(node, ast.ImportFrom):
                full = f"{'.' * node.level}{node.module or ''}.{alias.name}"
                self._imports[alias.asname or alias.name] = full.replace(".", " .")
            elif alias.asname:
                self._imports[alias.asname] = alias.name.replace(".", " .")


_WRITERS: dict[type[ast.AST], Any] = {
    ast.ClassDef: _Emitter._class,
    ast.FunctionDef: _Emitter._function,
    ast.AsyncFunctionDef: _Emitter._function,
    ast.arg: _Emitter._arg,
    ast.Name: _Emitter._variable,
    ast.Attribute: _Emitter._attribute,
    ast.Call: _Emitter._call,
    ast.Constant: _Emitter._constant,
    ast.Assign: _Emitter._assign,
    ast.AnnAssign: _Emitter._annotated,
    ast.Expr: _Emitter._expression,
    ast.BinOp: _Emitter._binary,
    ast.Subscript: _Emitter._subscript,
    ast.Tuple: _Emitter._tuple,
    ast.Return: _Emitter._return,
    ast.Import: _Emitter._import,
    ast.ImportFrom: _Emitter._import,
    **dict.fromkeys(_OPERATORS, _Emitter._operator),
}


def _constant(value: Any) -> str:
    return repr(value).replace(" ", "\x1f") if isinstance(value, str | bytes) else repr(value)


def _names_of(node: ast.stmt) -> set[str]:
    """Return the names that a top-level statement defines."""
    if isinstance(node, _FUNCTION):
        return {node.name}
    names = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and (isinstance(node, ast.Expr) or not isinstance(part.ctx, ast.Load)):
            names.add(part.id)
        elif isinstance(part, ast.Attribute | ast.Subscript) and not isinstance(part.ctx, ast.Load):
            # `Net.forward = …` and `TABLE["a"] = …` change what the name refers to.
            names.update(inner.id for inner in ast.walk(part.value) if isinstance(inner, ast.Name))
        elif isinstance(part, ast.FunctionDef | ast.ClassDef):
            names.add(part.name)
        elif isinstance(part, ast.alias):
            names.add(part.asname or part.name.partition(".")[0])
    return names
