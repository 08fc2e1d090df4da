"""Resolve the names in a candidate's source, and assign its parts to definitions.

One walk over the tree gives every node its scope, its parent and its unit (the function, method or class that
must be used for the node to run). `Tree.paths` then says which outside things an expression may refer to, as
dotted paths: after `import torch as t; m = t.cuda`, `m.synchronize` is `torch.cuda.synchronize`, and so is
`getattr(m, "synchro" + "nize")`. If an expression may also be something else, `UNKNOWN` is among the paths.

The analysis is flow-insensitive: all assignments to a name count, in any order. It does not follow values
through containers, calls and returns. It imports and runs nothing, and its recursion depth does not grow with
the nesting of the source.
"""

from __future__ import annotations

import ast
import builtins
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from kernelmill.evaluate.static.syntax import children, is_main_test, is_plain_assignment, targets_of, text_of

UNKNOWN = "?"
_BUILTINS = frozenset(dir(builtins)) | {"__builtins__"}
_MAX_PATHS = 16
_MAX_DEPTH = 60
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(eq=False)
class Scope:
    kind: Literal["module", "class", "function", "comprehension"]
    parent: Scope | None
    values: dict[str, list[tuple[ast.expr, Scope]]] = field(default_factory=dict)
    imports: dict[str, set[str]] = field(default_factory=dict)
    opaque: set[str] = field(default_factory=set)
    """Names bound to what cannot be followed: parameters, definitions, loop targets."""
    redirect: dict[str, Scope] = field(default_factory=dict)
    """Names declared global or nonlocal."""
    functions: dict[str, _Function] = field(default_factory=dict)

    def binds(self, name: str) -> bool:
        return name in self.values or name in self.imports or name in self.opaque


@dataclass(eq=False)
class Unit:
    """Something that runs only if it is used: a definition, or a plain assignment of the module."""

    kind: Literal["module", "function", "class", "assignment"]
    names: tuple[str, ...]
    parent: Unit | None
    node: ast.AST
    scope: Scope
    """The scope it is defined in."""
    mentions: set[str] = field(default_factory=set)
    children: list[Unit] = field(default_factory=list)


class _Place(NamedTuple):
    scope: Scope
    unit: Unit
    """The unit that the code there runs with."""
    home: Unit
    """The unit that a definition there belongs to."""


_OPENS_A_SCOPE = frozenset(
    {ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef}
    | {ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp}
)
_BINDS = frozenset({
    ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr, ast.For, ast.AsyncFor,
    ast.comprehension, ast.withitem, ast.Global, ast.Nonlocal, ast.ExceptHandler, ast.MatchAs, ast.MatchStar,
    ast.MatchMapping,
})  # fmt: skip


class Tree:
    """A parsed candidate. Code under `if __name__ == "__main__"` is left out, because it never runs here."""

    def __init__(self, module: ast.Module) -> None:
        self.module_scope = Scope("module", None)
        self.root = Unit("module", (), None, module, self.module_scope)
        self.nodes: list[ast.AST] = []
        """In source order."""
        self.scope: dict[ast.AST, Scope] = {}
        self.parent: dict[ast.AST, ast.AST] = {}
        self.unit: dict[ast.AST, Unit] = {}
        self.stars: list[str] = []
        self._self_attributes: dict[tuple[Scope, str], list[tuple[ast.expr, Scope]]] = {}
        self._known: dict[ast.AST | tuple[Scope, str], frozenset[str]] = {}
        self._renames_itself: bool | None = None
        self._walk(module)

    # The walk

    def _walk(self, module: ast.Module) -> None:
        here = _Place(self.module_scope, self.root, self.root)
        stack: list[tuple[ast.AST, _Place, ast.AST]] = [(s, here, module) for s in reversed(module.body)]
        while stack:
            node, place, parent = stack.pop()
            kind = type(node)
            if kind is ast.Constant:  # a third of all nodes, and never queried
                self._mention(node, place.unit)
                continue
            self.nodes.append(node)
            self.scope[node], self.unit[node], self.parent[node] = place.scope, place.unit, parent
            if kind in _OPENS_A_SCOPE:
                inside = self._open(node, place)
                inside.reverse()
                stack += [(child, there, node) for child, there in inside]
                continue
            if kind is ast.Name or kind is ast.Attribute:
                self._mention(node, place.unit)
            elif kind in _BINDS:
                self._bind(node, place.scope)
                if place.scope is self.module_scope and place.unit is self.root and is_plain_assignment(node):
                    unit = self._new_unit("assignment", targets_of(node), self.root, node, place.scope)
                    place = _Place(place.scope, unit, unit)
            below = list(children(node))
            if isinstance(node, ast.If) and is_main_test(node.test) and not self._is_renamed(module):
                below = [node.test, *node.orelse]
            below.reverse()
            stack += [(child, place, node) for child in below]

    def _open(self, node: ast.AST, place: _Place) -> list[tuple[ast.AST, _Place]]:
        """The parts of a node that opens a scope, in execution order, each with its place."""
        scope, unit, home = place
        match node:
            case ast.Lambda(args=args, body=value):
                inner = Scope("function", scope)
                self._parameters(args, scope, inner)
                return [*((c, place) for c in children(args)), (value, _Place(inner, unit, home))]
            case ast.FunctionDef(name=name, args=args) | ast.AsyncFunctionDef(name=name, args=args):
                scope.opaque.add(name)
                scope.functions[name] = node
                own = self._new_unit("function", (name,), home, node, scope)
                inner = Scope("function", scope)
                self._parameters(args, scope, inner)
                head = [*node.decorator_list, *children(args), *([node.returns] if node.returns else [])]
                there = _Place(inner, own, own)
                return [*((c, place) for c in head), *((s, there) for s in node.body)]
            case ast.ClassDef(name=name):
                scope.opaque.add(name)
                own = self._new_unit("class", (name,), home, node, scope)
                # The body runs with its surroundings. The definitions in it belong to the class.
                there = _Place(Scope("class", scope), unit, own)
                return [
                    *((c, place) for c in [*node.decorator_list, *node.bases, *node.keywords]),
                    *((s, there) for s in node.body),
                ]
        there = _Place(Scope("comprehension", scope), unit, home)
        parts = sorted(
            children(node), key=lambda part: not isinstance(part, ast.comprehension)
        )  # loops first
        return [(part, there) for part in parts]

    def _is_renamed(self, module: ast.Module) -> bool:
        """Whether the module assigns its own `__name__`."""
        if self._renames_itself is None:
            self._renames_itself = any(
                (isinstance(n, ast.Name) and n.id == "__name__" and not isinstance(n.ctx, ast.Load))
                or (isinstance(n, ast.Constant) and n.value == "__name__")
                for n in ast.walk(module)
            )
        return self._renames_itself

    def _new_unit(
        self,
        kind: Literal["function", "class", "assignment"],
        names: tuple[str, ...],
        parent: Unit,
        node: ast.AST,
        scope: Scope,
    ) -> Unit:
        unit = Unit(kind, names, parent, node, scope)
        parent.children.append(unit)
        return unit

    @staticmethod
    def _mention(node: ast.AST, unit: Unit) -> None:
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                unit.mentions.add(name)
            case ast.Attribute(attr=name):
                unit.mentions.add(name)
            case ast.Constant(value=str(text)) if len(text) < 200:
                unit.mentions.update(text.split("."))

    def _parameters(self, args: ast.arguments, outer: Scope, inner: Scope) -> None:
        positional = [*args.posonlyargs, *args.args]
        defaults: list[tuple[ast.arg, ast.expr | None]] = [
            *zip(reversed(positional), reversed(args.defaults), strict=False),
            *zip(args.kwonlyargs, args.kw_defaults, strict=True),
        ]
        for parameter in [*positional, *args.kwonlyargs, *(a for a in (args.vararg, args.kwarg) if a)]:
            inner.opaque.add(parameter.arg)
        for parameter, default in defaults:
            if default is not None:
                inner.values.setdefault(parameter.arg, []).append((default, outer))

    def _bind(self, node: ast.AST, scope: Scope) -> None:
        match node:
            case ast.Import(names=names):
                for alias in names:
                    path = alias.name if alias.asname else alias.name.split(".")[0]
                    self._import(scope, alias.asname or path, path)
            case ast.ImportFrom(module=module, names=names, level=level):
                source = "." * level + (module or "")
                for alias in names:
                    if alias.name == "*":
                        self.stars.append(source)
                    else:
                        self._import(scope, alias.asname or alias.name, f"{source}.{alias.name}")
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._assign(target, value, scope)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign(target, value, scope)
            case ast.NamedExpr(target=target, value=value):
                while scope.kind == "comprehension" and scope.parent is not None:
                    scope = scope.parent
                self._assign(target, value, scope)
            case (
                ast.For(target=target, iter=source_)
                | ast.AsyncFor(target=target, iter=source_)
                | ast.comprehension(target=target, iter=source_)
            ):
                if isinstance(source_, ast.Tuple | ast.List):
                    for item in source_.elts:
                        self._assign(target, item, scope)
                else:
                    self._assign(target, None, scope)
            case ast.AugAssign(target=target):
                self._assign(target, None, scope)
            case ast.withitem(optional_vars=ast.expr() as target):
                self._assign(target, None, scope)
            case ast.Global(names=declared):
                scope.redirect.update(dict.fromkeys(declared, self.module_scope))
            case ast.Nonlocal(names=declared):
                outer = scope.parent
                while outer is not None and outer.kind != "function":
                    outer = outer.parent
                scope.redirect.update(dict.fromkeys(declared, outer or self.module_scope))
            case (
                ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
            ):
                scope.opaque.add(name)
            case ast.MatchMapping(rest=str(name)):
                scope.opaque.add(name)

    @staticmethod
    def _import(scope: Scope, name: str, path: str) -> None:
        scope.redirect.get(name, scope).imports.setdefault(name, set()).add(path)

    def _assign(self, target: ast.AST, value: ast.expr | None, scope: Scope) -> None:
        match target, value:
            case ast.Name(id=name), None:
                scope.redirect.get(name, scope).opaque.add(name)
            case ast.Name(id=name), ast.expr():
                scope.redirect.get(name, scope).values.setdefault(name, []).append((value, scope))
            case ast.Attribute(value=ast.Name(id="self"), attr=name), ast.expr():
                owner = self._class_scope(scope)
                if owner is not None:
                    self._self_attributes.setdefault((owner, name), []).append((value, scope))
            case (
                (ast.Tuple(elts=left) | ast.List(elts=left)),
                (ast.Tuple(elts=right) | ast.List(elts=right)),
            ) if len(left) == len(right) and not any(isinstance(e, ast.Starred) for e in [*left, *right]):
                for one, other in zip(left, right, strict=True):
                    self._assign(one, other, scope)
            case ((ast.Tuple() | ast.List()), _):
                for name_ in ast.walk(target):
                    if isinstance(name_, ast.Name):
                        scope.redirect.get(name_.id, scope).opaque.add(name_.id)

    @staticmethod
    def _class_scope(scope: Scope | None) -> Scope | None:
        while scope is not None and scope.kind != "class":
            scope = scope.parent
        return scope

    # What an expression refers to

    def paths(self, node: ast.AST, _depth: int = 0) -> frozenset[str]:
        """The dotted paths of outside things that an expression may be.

        Includes `UNKNOWN` if it may be something else.
        """
        if node in self._known:
            return self._known[node]
        if _depth > _MAX_DEPTH:
            return frozenset({UNKNOWN})
        self._known[node] = frozenset()  # placeholder while it is computed: a cycle adds nothing
        found = frozenset(sorted(self._paths(node, _depth + 1))[:_MAX_PATHS])
        self._known[node] = found
        return found

    def _paths(self, node: ast.AST, depth: int) -> set[str]:
        match node:
            case ast.Constant():
                return set()  # `x = None` before the real assignment
            case ast.Name(id=name):
                return self._name_paths(name, self.scope[node], depth)
            case ast.Attribute(value=ast.Name(id="self"), attr=attr):
                owner = self._class_scope(self.scope[node])
                values = (
                    [*self._self_attributes.get((owner, attr), []), *owner.values.get(attr, [])]
                    if owner
                    else []
                )
                return set().union(*(self.paths(value, depth) for value, _ in values)) or {UNKNOWN}
            case ast.Attribute(value=value, attr=attr):
                return {_joined(path, attr) for path in self.paths(value, depth)}
            case ast.NamedExpr(value=value):
                return set(self.paths(value, depth))
            case ast.IfExp(body=body, orelse=orelse):
                return set(self.paths(body, depth) | self.paths(orelse, depth))
            case ast.BoolOp(values=values):
                return set().union(*(self.paths(value, depth) for value in values))
            case ast.Subscript(value=ast.Tuple(elts=elts) | ast.List(elts=elts)):
                return set().union(*(self.paths(item, depth) for item in elts))
            case ast.Subscript(value=value, slice=key):
                item = text_of(key)
                return {self._item(path, item) for path in self.paths(value, depth)}
            case ast.Call():
                return self._call_paths(node, depth)
        return {UNKNOWN}

    @staticmethod
    def _item(path: str, name: str | None) -> str:
        if name is None:
            return UNKNOWN
        if path.endswith(".__dict__"):
            return _joined(path.removesuffix(".__dict__"), name)
        if path == "sys.modules":
            return name
        if path == "builtins.__builtins__":
            return f"builtins.{name}"
        return UNKNOWN

    def _name_paths(self, name: str, scope: Scope, depth: int) -> set[str]:
        here: Scope | None = scope.redirect.get(name, scope)
        start = here
        while here is not None and not ((here is start or here.kind != "class") and here.binds(name)):
            here = here.parent
            if here is not None and name in here.redirect:
                here = here.redirect[name]
        if here is None:
            found = {_joined(star, name) for star in self.stars}
            if name in _BUILTINS:
                return found | {f"builtins.{name}"}
            return found if len(found) == 1 else found | {UNKNOWN}
        key = (here, name)
        if key not in self._known:
            self._known[key] = frozenset()
            found = set(here.imports.get(name, ()))
            for value, _ in here.values.get(name, [])[:200]:
                found |= self.paths(value, depth)
            if name in here.opaque:
                found.add(UNKNOWN)
            self._known[key] = frozenset(found)
        return set(self._known[key])

    def _call_paths(self, node: ast.Call, depth: int) -> set[str]:
        for function in self.paths(node.func, depth):
            match function, node.args:
                case "builtins.getattr", [base, name, *_]:
                    attr = text_of(name)
                    return {_joined(path, attr) if attr else UNKNOWN for path in self.paths(base, depth)}
                case "builtins.vars", [base]:
                    return {_joined(path, "__dict__") for path in self.paths(base, depth)}
                case (
                    ("builtins.__import__" | "importlib.import_module" | "importlib.__import__"),
                    [name, *_],
                ):
                    module = text_of(name)
                    if module is not None:
                        return {module.split(".")[0] if "__import__" in function else module}
        return {UNKNOWN}


def _joined(path: str, attr: str) -> str:
    return UNKNOWN if path == UNKNOWN or len(path) > 300 else f"{path}.{attr}"
