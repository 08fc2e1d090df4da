"""When two modules are the same code, whatever their names.

A module is reduced to its classes and helper functions, without imports, docstrings, annotations, `get_inputs` and its
siblings, and with every name that the module itself gives (classes, functions, parameters, variables, attributes) replaced by
its order of appearance. Names from imports are written out (`nn.Linear` and `torch.nn.Linear` are one). What is left, a list of
tokens, is hashed, and cut into shingles for comparing modules that are nearly the same. It sees code, not meaning: `x + y` and
`y + x` differ.

Keys and shingles are the same in every process and under every version of Python that reads the code: datasets are split by them.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Collection, Iterator
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from kernelmill.base.python_text import parse_module
from kernelmill.problems.source import CONVENTION_FUNCTIONS

SHINGLE = 5
_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
_TOKEN = re.compile(r"\w+|[^\w\s]")


class Structure(NamedTuple):
    key: bytes
    """Equal for modules that are the same code."""
    shingles: frozenset[int]
    """Runs of five tokens of the normal form, as 64 bit numbers; their overlap says how alike two modules are."""


def structure_of(code: str) -> Structure:
    """The structure of a module. Code that does not parse is taken as text, blanks apart."""
    return structure_of_tokens(normal_tokens(code)[0])


def structure_of_tokens(tokens: list[str]) -> Structure:
    digest = hashlib.blake2b(" ".join(tokens).encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return Structure(digest, _shingles(tokens))


def jaccard(one: frozenset[int], other: frozenset[int]) -> float:
    """Shared shingles over all shingles."""
    common = len(one & other)
    return common / (len(one) + len(other) - common) if one or other else 1.0


def normal_tokens(code: str) -> tuple[list[str], bool]:
    """The tokens of the normal form, and whether the code could be parsed; if not, they are those of its text."""
    try:
        tree = parse_module(code)
        return normal_form(tree)[0], True
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _TOKEN.findall(code), False


def normal_form(tree: ast.Module, idle: Collection[ast.stmt] = ()) -> tuple[list[str], list[ast.stmt]]:
    """The tokens of a file, and the statements of the file that are left out of them because no class needs them.

    `idle` are assignments inside functions that are to be left out too. Raises RecursionError on code that is nested too deeply.
    """
    tree.body = list(flat(tree.body))
    emitter = _Emitter(idle)
    return emitter.module(tree), emitter.unneeded


@lru_cache(1 << 16)
def _number(token: str) -> int:
    """A token as a number that is the same everywhere, which `hash` is not."""
    return int.from_bytes(
        hashlib.blake2b(token.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big"
    )


_MASK = (1 << 64) - 1
_BASE = 0x9E3779B97F4A7C15
_BASE_TO_SHINGLE = pow(_BASE, SHINGLE, 1 << 64)


def _shingles(tokens: list[str]) -> frozenset[int]:
    """Every run of `SHINGLE` tokens as a rolling hash; fewer tokens make one run."""
    numbers = [_number(token) for token in tokens]
    run = 0
    for number in numbers[:SHINGLE]:
        run = (run * _BASE + number) & _MASK
    found = {run}
    for new, old in zip(islice(numbers, SHINGLE, None), numbers, strict=False):
        run = (run * _BASE + new - old * _BASE_TO_SHINGLE) & _MASK
        found.add(run)
    return frozenset(found)


_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {}
"""What is written of each kind of node that has no method of its own. The context says nothing that the place does not."""
_LEFT_OUT = {"ctx", "annotation", "returns", "type_comment", "type_params", "kind", "type_ignores"}
_OPERATORS: dict[type[ast.AST], str] = {
    kind: kind.__name__
    for base in (ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
    for kind in base.__subclasses__()
}


class _Emitter:
    """Writes a syntax tree as tokens in one walk, each node in brackets of some kind so that no two trees look alike."""

    def __init__(self, idle: Collection[ast.stmt]) -> None:
        self._idle = frozenset(idle)
        self.unneeded: list[ast.stmt] = []
        self._out: list[str] = []
        self._renamed: list[int] = []
        """Where a name stands that may be one of the module's own: known only at the end."""
        self._given: set[str] = set()
        self._imports: dict[str, str] = {}
        self._imported: set[str] = set()
        self._class_name = ""
        self._loads: set[str] = set()
        self._bound: set[str] = set()
        """Names that the function under way reads, and those that are its own."""

    def module(self, tree: ast.Module) -> list[str]:
        """The classes, and then what they need of the rest: no shapes, seeds or helpers that only `get_inputs` uses."""
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
            # No class: its functions are what the file is for, or else all of it.
            functions = {node.name for node, _ in rest if isinstance(node, _FUNCTION)}
            self._loads = functions or set().union(*(names for _, names in rest))
        while needed := [part for part in rest if part[1] & self._loads - self._imported]:
            rest = [part for part in rest if part not in needed]
            self._body([node for node, _ in needed])
        self.unneeded += [node for node, _ in rest]
        self._rename()
        # A name that was written out is several tokens.
        return " ".join(self._out).split(" ") if self._out else []

    def _rename(self) -> None:
        """Give the module's own names their numbers, in order of appearance, and write imported ones out."""
        # These are called by others.
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
            # What is empty is not written, so that a field that a later Python adds changes nothing.
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
            # Only what hangs on `self`: a method of a tensor may share its name with something of ours.
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
            # A keyword argument of torch may share its name with a variable of ours.
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
        if node.value.__class__ is not ast.Constant:  # a docstring, or as good as one
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
        """Note what each imported name stands for. The import itself is not written: it may be dead."""
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
    """The names that a statement of the file gives."""
    if isinstance(node, _FUNCTION):
        return {node.name}
    names = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and (isinstance(node, ast.Expr) or not isinstance(part.ctx, ast.Load)):
            names.add(part.id)
        elif isinstance(part, ast.Attribute | ast.Subscript) and not isinstance(part.ctx, ast.Load):
            # `Net.forward = …` and `TABLE["a"] = …` change what the name stands for.
            names.update(inner.id for inner in ast.walk(part.value) if isinstance(inner, ast.Name))
        elif isinstance(part, ast.FunctionDef | ast.ClassDef):
            names.add(part.name)
        elif isinstance(part, ast.alias):
            names.add(part.asname or part.name.partition(".")[0])
    return names


def flat(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a file, out of the conditions and `try`s that they stand in; not what runs as a script only."""
    for node in body:
        if isinstance(node, ast.If) and not _is_main(node.test):
            yield from flat(node.body)
            yield from flat(node.orelse)
        elif isinstance(node, ast.Try):
            parts = [node.body, *(handler.body for handler in node.handlers), node.orelse, node.finalbody]
            for part in parts:
                yield from flat(part)
        else:
            yield node


def _is_main(test: ast.expr) -> bool:
    return any(isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(test))


def is_plain_super(node: ast.AST, class_name: str) -> bool:
    """`super()`, or what is the same inside this class: `super(Net, self)`."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"):
        return False
    if not node.args:
        return True
    named = node.args[0]
    return isinstance(named, ast.Name) and named.id in (class_name, "__class__")


def does_nothing(node: ast.FunctionDef | ast.AsyncFunctionDef, class_name: str) -> bool:
    """An `__init__` that only calls its base's: leaving it out is the same."""
    arguments = node.args
    if node.name != "__init__" or len(arguments.args) != 1:
        return False
    if arguments.posonlyargs or arguments.kwonlyargs or arguments.vararg or arguments.kwarg:
        return False
    return all(
        isinstance(statement, ast.Pass)
        or (isinstance(statement, ast.Expr) and _is_text_or_base_call(statement.value, class_name))
        for statement in node.body
    )


def _is_text_or_base_call(node: ast.expr, class_name: str) -> bool:
    return isinstance(node, ast.Constant) or (
        isinstance(node, ast.Call)
        and not (node.args or node.keywords)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "__init__"
        and is_plain_super(node.func.value, class_name)
    )
