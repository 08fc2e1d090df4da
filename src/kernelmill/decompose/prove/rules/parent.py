"""Check what a parent (refactored.py, composition_test.py) may contain. Nothing is run.

A parent builds its children from literals, and its `forward` calls them and passes values on. What it does is
checked again at run time (`prove.worker`): an index such as `x[0]` is plumbing for a tuple but computation
for a tensor.
"""

from __future__ import annotations

import ast
from collections import Counter

from kernelmill.decompose.prove.rules.syntax import at_line, is_constant, parameters, parse, shown

PARENT_IMPORTS = {"torch", "torch.nn"}
COMPOSITION_IMPORTS = PARENT_IMPORTS | {"sys", "json", "importlib", "importlib.util"}
"""`run_tests` of a composition may use these; its `forward` cannot."""
_PATH_IMPORT = "from pathlib import Path"
_PATH_LINE = "sys.path.insert(0, str(Path(__file__).resolve().parents[1]))"


class Parent:
    """The checked parent: `violations`, `imported` (child file by alias) and `built` (alias by attribute)."""

    def __init__(self, code: str, package: str) -> None:
        """`package` is the package that children are imported from; a composition has its own."""
        self.violations: list[str] = []
        self.imported: dict[str, str] = {}
        self.built: dict[str, str] = {}
        self.arguments: dict[str, list[str]] = {}
        """The constructor arguments of each child, as `repr` shows them."""
        self.calls: Counter[str] = Counter()
        """Calls of children in `forward`, by attribute. `forward` has no loops, so these are exact."""
        self._package = package
        self._composition = package != "children"
        tree = parse(code)
        if isinstance(tree, str):
            self.violations.append(tree)
            return
        classes = 0
        for node in _without_docstring(tree.body):
            if isinstance(node, ast.ClassDef):
                classes += 1
                self._class(node)
            else:
                self._top(node)
        if classes != 1:
            self.violations.append(f"it has {classes} classes, not Model alone")
        unused = set(self.imported) - set(self.built.values())
        self.violations += [
            f"it imports {self.imported[name]} and does not use it" for name in sorted(unused)
        ]

    def _refuse(self, node: ast.AST, what: str) -> None:
        self.violations.append(at_line(node, what))

    def _top(self, node: ast.stmt) -> None:
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            package, _, name = node.module.partition(".")
            if package == self._package and name.isidentifier() and [n.name for n in node.names] == ["Model"]:
                self.imported[node.names[0].asname or "Model"] = name
                return
            said = ast.unparse(node)
            if said == "from torch import nn" or (self._composition and said == _PATH_IMPORT):
                return
        elif isinstance(node, ast.Import):
            allowed = COMPOSITION_IMPORTS if self._composition else PARENT_IMPORTS
            if all(n.name in allowed and n.asname in (None, "nn") for n in node.names):
                return
        elif self._composition and (ast.unparse(node) == _PATH_LINE or _is_tests(node)):
            return
        self._refuse(node, f"a parent may not have this: {shown(node)}")

    def _class(self, node: ast.ClassDef) -> None:
        if node.name != "Model" or [ast.unparse(b) for b in node.bases] != ["nn.Module"] or node.keywords:
            self._refuse(node, "the class is not Model(nn.Module)")
        if node.decorator_list:
            self._refuse(node, "the class is decorated")
        body = _without_docstring(node.body)
        methods = {n.name: n for n in body if isinstance(n, ast.FunctionDef)}
        for other in body:
            if not (isinstance(other, ast.FunctionDef) and other.name in ("__init__", "forward")):
                self._refuse(other, f"the class has more than __init__ and forward: {shown(other)}")
        for name in ("__init__", "forward"):
            if name not in methods:
                self._refuse(node, f"the class has no {name}")
        for method in methods.values():
            self._signature(method)
        if "__init__" in methods:
            self._init(methods["__init__"])
        if "forward" in methods:
            self._forward(methods["forward"])

    def _signature(self, method: ast.FunctionDef) -> None:
        if method.decorator_list:
            self._refuse(method, f"{method.name} is decorated")
        arguments = method.args
        for default in [*arguments.defaults, *(d for d in arguments.kw_defaults if d is not None)]:
            if not _is_literal(default):
                self._refuse(default, f"a default that is no literal: {shown(default)}")
        every = parameters(method)
        for note in [*(a.annotation for a in every), method.returns]:
            for part in ast.walk(note) if note is not None else ():
                if isinstance(part, ast.Call | ast.Lambda | ast.NamedExpr | ast.comprehension | ast.Await):
                    self._refuse(method, "an annotation that computes")
        if method.name == "__init__" and (len(every) != 1):
            self._refuse(method, "the parent's constructor takes arguments")

    def _init(self, method: ast.FunctionDef) -> None:
        for node in _without_docstring(method.body):
            if shown(node) in ("super().__init__()", "super(Model, self).__init__()"):
                continue
            match node:
                case ast.Assign(
                    targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)],
                    value=ast.Call(func=ast.Name(id=alias), args=args, keywords=keywords),
                ) if alias in self.imported:
                    values = [*args, *(k.value for k in keywords)]
                    if all(_is_literal(v) for v in values) and all(k.arg for k in keywords):
                        self.built[name] = alias
                        self.arguments[name] = [_value_of(v) for v in values]
                        continue
            self._refuse(node, f"not a child made from literals: {shown(node)}")

    def _forward(self, method: ast.FunctionDef) -> None:
        names = {one.arg for one in parameters(method)[1:]}
        body = _without_docstring(method.body)
        for node in body:
            match node:
                case ast.Assign(targets=targets, value=value):
                    self._value(value, names)
                    for target in targets:
                        names |= self._target(target)
                case ast.Return(value=value) if node is body[-1]:
                    if value is not None:
                        self._value(value, names)
                case ast.Expr(value=ast.Call() as call):
                    self._value(call, names)
                case ast.Pass():
                    pass
                case _:
                    self._refuse(node, f"not plumbing: {shown(node)}")

    def _target(self, node: ast.expr) -> set[str]:
        match node:
            case ast.Name(id=name):
                return {name}
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return {name for part in parts for name in self._target(part)}
            case ast.Starred(value=inner):
                return self._target(inner)
        self._refuse(node, f"an assignment to something else than names: {shown(node)}")
        return set()

    def _value(self, node: ast.expr, names: set[str]) -> None:
        """Check an expression of `forward`, then the expressions inside it."""
        inside: list[ast.expr] = []
        match node:
            case ast.Name(id=name) if name in names:
                pass
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                inside = parts
            case ast.Starred(value=inner):
                inside = [inner]
            case ast.Dict(keys=keys, values=values):
                for key in keys:
                    if key is not None and not _is_literal(key):
                        self._refuse(key, f"a key that is no literal: {shown(key)}")
                inside = values
            case ast.Subscript(
                value=ast.Attribute(value=ast.Name(id=name), attr="shape"), slice=ast.Constant(value=int())
            ) if name in names:
                pass
            case ast.Subscript(value=inner, slice=index) if _is_index(index):
                inside = [inner]
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="self"), attr=name), args=args, keywords=keywords
            ):
                self.calls[name] += 1
                if name not in self.built:
                    self._refuse(node, f"self.{name} is not a child")
                inside = [*args, *(k.value for k in keywords)]
            case _ if not _is_literal(node):
                self._refuse(node, f"the parent computes: {shown(node)}")
        for one in inside:
            self._value(one, names)


def _is_tests(node: ast.stmt) -> bool:
    """Whether it is `run_tests` or its `__main__` call.

    They never run here, so their contents do not matter.
    """
    if isinstance(node, ast.FunctionDef):
        arguments = node.args
        bare = not (arguments.defaults or arguments.kw_defaults or node.decorator_list)
        return node.name == "run_tests" and bare and not any(a.annotation for a in arguments.args)
    return isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'" and not node.orelse


def _is_index(node: ast.expr) -> bool:
    return _is_literal(node) and not isinstance(node, ast.Tuple | ast.List | ast.Dict)


def _is_literal(node: ast.expr) -> bool:
    return is_constant(node, literal=True)


def _value_of(node: ast.expr) -> str:
    """A literal as `repr` shows it."""
    try:
        return repr(ast.literal_eval(node))
    except ValueError:  # `torch.float16`, `float("inf")`
        return ast.unparse(node).replace("float('inf')", "inf").replace("float('nan')", "nan")


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    match body:
        case [ast.Expr(value=ast.Constant(value=str())), *rest]:
            return rest
    return body
