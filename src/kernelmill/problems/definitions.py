"""What a module's source text defines: classes, functions, imported names, parameters, lines of code."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias

import msgspec

from kernelmill.errors import SourceError

CONVENTION_FUNCTIONS = ("get_inputs", "get_init_inputs", "get_input_kwargs")

ParamKind = Literal["positional", "keyword", "*args", "**kwargs"]
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


class Param(msgspec.Struct, frozen=True):
    """One parameter of `__init__` or `forward`, without `self`; annotation and default as source text."""

    name: str
    kind: ParamKind
    annotation: str | None = None
    default: str | None = None


def one_line(text: str) -> str:
    return _clean(" ".join(text.split()))


def _clean(text: str) -> str:
    """Make the text encodable as UTF-8: a lone surrogate becomes a question mark."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def text_of(node: ast.AST) -> str:
    return _clean(ast.unparse(node))


def docstring_of(node: ast.ClassDef | Function | None) -> str | None:
    found = ast.get_docstring(node) if node is not None else None
    return None if found is None else _clean(found)


def in_text_order(*roots: ast.AST) -> Iterator[ast.AST]:
    """Yield every node under the roots, outer before inner, without recursion."""
    stack = list(reversed(roots))
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(list(ast.iter_child_nodes(node))))


def is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def is_super(node: ast.AST) -> bool:
    """Whether the node is `super()` or `super(Net, self)`."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


class Definitions:
    """The classes, functions and imported names of a file, and its statements as `lines`."""

    def __init__(self, tree: ast.Module) -> None:
        self.aliases: dict[str, str] = {}
        self.classes: dict[str, ast.ClassDef] = {}
        self.functions: dict[str, Function] = {}
        self.lines: list[str] = []
        self._methods: dict[str, dict[str, Function]] = {}
        self._is_module: dict[str, bool] = {}
        self._statements(tree.body, top=True)

    def _statements(self, body: Iterable[ast.stmt], top: bool) -> None:
        """Collect code lines and imports from everywhere, classes and functions from the top level."""
        for node in body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._import(node)
                continue
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                if not isinstance(node.value.value, str):
                    self.lines.append(text_of(node))
                continue  # a docstring, or a string used as a comment
            inner_top = top
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                if top and isinstance(node, ast.ClassDef):
                    self.classes[node.name] = node
                elif top and not isinstance(node, ast.ClassDef):
                    self.functions[node.name] = node
                inner_top = False
            if isinstance(node, ast.Match):
                self.lines.append(f"match {text_of(node.subject)}:")
                for case in node.cases:
                    self._statements(case.body, inner_top)
                continue
            blocks = [getattr(node, field, None) or [] for field in ("body", "orelse", "finalbody")]
            if not any(blocks):
                self.lines.extend(text_of(node).splitlines())
                continue
            self.lines.extend(_header(node))
            self._statements(blocks[0], inner_top)
            for handler in getattr(node, "handlers", ()):
                self._statements(handler.body, inner_top)
            for block in blocks[1:]:
                self._statements(block, inner_top)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            if isinstance(node, ast.ImportFrom):
                self.aliases[alias.asname or alias.name] = f"{node.module or '.'}.{alias.name}"
            elif alias.asname:
                self.aliases[alias.asname] = alias.name
            else:
                root = alias.name.partition(".")[0]
                self.aliases[root] = root

    def resolve(self, node: ast.AST) -> str | None:
        """Return the full name of something imported (`torch.nn.Linear` for `nn.Linear`), else None."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.aliases:
            return None
        return ".".join([self.aliases[node.id], *reversed(parts)])

    def methods(self, name: str) -> dict[str, Function]:
        """Return the methods of a class defined here, including those of bases defined here."""
        if name not in self._methods:
            found = self._methods[name] = {}  # set first: a class may be its own base
            if name in self.classes:
                for base in reversed(self.classes[name].bases):
                    if isinstance(base, ast.Name):
                        found.update(self.methods(base.id))
                for node in self.classes[name].body:
                    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                        found[node.name] = node
        return self._methods[name]

    def is_module(self, name: str) -> bool:
        if name not in self._is_module:
            self._is_module[name] = False
            self._is_module[name] = any(
                self.is_module(base.id)
                if isinstance(base, ast.Name) and base.id in self.classes
                else (self.resolve(base) or "").startswith("torch.nn.") or text_of(base).endswith("Module")
                for base in self.classes[name].bases
            )
        return self._is_module[name]

    def entry_point(self, given: str | None) -> str:
        """The name of the module's class. Raises SourceError if it is not there, or cannot be told."""
        if given is not None:
            if given in self.classes:
                return given
            known = ", ".join(self.classes) or "no class"
            raise SourceError(one_line(f"the source defines no class {given!r}: it has {known}"))
        if "Model" in self.classes:
            return "Model"
        modules = [name for name in self.classes if self.is_module(name)]
        # A factory function may also name the entry point, so the stricter rule comes first.
        for users in ({**self.functions, **self.classes}, self.classes):
            used = {
                node.id
                for name, user in users.items()
                for node in in_text_order(user)
                if isinstance(node, ast.Name) and node.id != name
            }
            unused = [name for name in modules if name not in used]
            if len(unused) == 1:
                return unused[0]
        if not modules:
            raise SourceError("the source defines no nn.Module subclass")
        raise SourceError(f"cannot tell which of {', '.join(modules)} is the module: name the entry point")


def _header(node: ast.stmt) -> list[str]:
    """Return the lines of a compound statement without its blocks, with decorators."""
    bare = copy.copy(node)
    for field in ("body", "orelse", "finalbody", "handlers"):
        if hasattr(bare, field):
            setattr(bare, field, [])
    return text_of(bare).splitlines()


def params_of(function: Function | None) -> tuple[Param, ...]:
    if function is None:
        return ()
    spec = function.args
    static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in function.decorator_list)
    positional = [*spec.posonlyargs, *spec.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(spec.defaults))
    rows: list[tuple[ast.arg, ParamKind, ast.expr | None]] = [
        (arg, "positional", default)
        for arg, default in zip(positional, [*defaults, *spec.defaults], strict=True)
    ][0 if static else 1 :]
    if spec.vararg:
        rows.append((spec.vararg, "*args", None))
    rows += [(arg, "keyword", d) for arg, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True)]
    if spec.kwarg:
        rows.append((spec.kwarg, "**kwargs", None))
    return tuple(
        Param(
            arg.arg,
            kind,
            None if arg.annotation is None else text_of(arg.annotation),
            None if default is None else text_of(default),
        )
        for arg, kind, default in rows
    )
