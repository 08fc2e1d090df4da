"""Facts from a PyTorch module's source text, read from its syntax tree alone.

Nothing is run and torch is not imported, so this is safe on untrusted code and takes about a millisecond. It
sees names, not values: an operator counts whether it adds tensors or integers, a layer counts once however
often a loop builds it, and whether an `if` depends on data is inferred from where its names come from.
`kernelmill.problems.facts` has the traced counterpart, with shapes.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeAlias

import msgspec

from kernelmill.base.python_text import parse_module
from kernelmill.errors import SourceError

MAX_SOURCE_CHARS = 400_000
CONVENTION_FUNCTIONS = ("get_inputs", "get_init_inputs", "get_input_kwargs")

ParamKind = Literal["positional", "keyword", "*args", "**kwargs"]
_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

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


class Param(msgspec.Struct, frozen=True):
    """One parameter of `__init__` or `forward`, without `self`; annotation and default as source text."""

    name: str
    kind: ParamKind
    annotation: str | None = None
    default: str | None = None


class Layer(msgspec.Struct, frozen=True):
    """A `torch.nn` constructor called while a module is built, such as `nn.Linear` with `d, 4 * d`."""

    name: str
    arguments: str
    attribute: str | None
    owner: str


class ModuleSource(msgspec.Struct, frozen=True):
    """Facts about the entry point and everything that `forward` reaches.

    `operations` counts the occurrences in the text, in order of appearance: `torch.softmax`, `F.relu`,
    `.mean` (a method of some value), `@`. `functions` are the helpers, without `get_inputs` and the like.
    `code_lines` are the statements in a normal form, without docstrings, comments and imports; a compound
    statement gives its header.
    """

    entry_point: str
    docstring: str | None
    forward_docstring: str | None
    init_params: tuple[Param, ...]
    forward_params: tuple[Param, ...]
    classes: tuple[str, ...]
    functions: tuple[str, ...]
    layers: tuple[Layer, ...]
    operations: dict[str, int]
    has_loops: bool
    has_data_dependent_ifs: bool
    code_lines: tuple[str, ...]


def read_source(code: str, entry_point: str | None = None) -> ModuleSource:
    """Read the source of a module. Raises only `SourceError`, if the text cannot be read.

    Without `entry_point`, the module is the class `Model`, or the only module class that no other uses.
    """
    if len(code) > MAX_SOURCE_CHARS:
        raise SourceError(f"the source has {len(code)} characters, the limit is {MAX_SOURCE_CHARS}")
    try:
        tree = parse_module(code)
        return _Reader(tree).read(entry_point)
    except SyntaxError as error:
        raise SourceError(f"the source does not parse: line {error.lineno}: {_one_line(error.msg)}") from None
    except (RecursionError, MemoryError):
        raise SourceError("the source is nested too deeply to read") from None
    except (ValueError, OverflowError) as error:
        raise SourceError(f"the source does not parse: {_one_line(str(error))}") from None


def _one_line(text: str) -> str:
    return _clean(" ".join(text.split()))


def _clean(text: str) -> str:
    """Make the text encodable as UTF-8: a lone surrogate becomes a question mark."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _text(node: ast.AST) -> str:
    return _clean(ast.unparse(node))


def _docstring(node: ast.ClassDef | _Function | None) -> str | None:
    found = ast.get_docstring(node) if node is not None else None
    return None if found is None else _clean(found)


def _in_text_order(*roots: ast.AST) -> Iterator[ast.AST]:
    """Yield every node under the roots, outer before inner, without recursion."""
    stack = list(reversed(roots))
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(list(ast.iter_child_nodes(node))))


class _Reader:
    def __init__(self, tree: ast.Module) -> None:
        self.aliases: dict[str, str] = {}
        self.classes: dict[str, ast.ClassDef] = {}
        self.functions: dict[str, _Function] = {}
        self.lines: list[str] = []
        self._methods: dict[str, dict[str, _Function]] = {}
        self._is_module: dict[str, bool] = {}
        self._statements(tree.body, top=True)

    def read(self, entry_point: str | None) -> ModuleSource:
        name = self._entry_point(entry_point)
        reach = _Reach(self)
        reach.enter_class(name)
        reach.finish()
        methods = self.methods(name)
        init, forward = methods.get("__init__"), methods.get("forward")
        return ModuleSource(
            entry_point=name,
            docstring=_docstring(self.classes[name]),
            forward_docstring=_docstring(forward),
            init_params=_params(init),
            forward_params=_params(forward),
            classes=tuple(self.classes),
            functions=tuple(f for f in self.functions if f not in CONVENTION_FUNCTIONS),
            layers=tuple(reach.layers),
            operations=reach.operations,
            has_loops=reach.has_loops,
            has_data_dependent_ifs=reach.has_data_dependent_ifs,
            code_lines=tuple(self.lines),
        )

    def _statements(self, body: Iterable[ast.stmt], top: bool) -> None:
        """Collect code lines and imports from everywhere, classes and functions from the top level."""
        for node in body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._import(node)
                continue
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                if not isinstance(node.value.value, str):
                    self.lines.append(_text(node))
                continue  # a docstring, or a string used as a comment
            inner_top = top
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                if top and isinstance(node, ast.ClassDef):
                    self.classes[node.name] = node
                elif top and not isinstance(node, ast.ClassDef):
                    self.functions[node.name] = node
                inner_top = False
            if isinstance(node, ast.Match):
                self.lines.append(f"match {_text(node.subject)}:")
                for case in node.cases:
                    self._statements(case.body, inner_top)
                continue
            blocks = [getattr(node, field, None) or [] for field in ("body", "orelse", "finalbody")]
            if not any(blocks):
                self.lines.extend(_text(node).splitlines())
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

    def methods(self, name: str) -> dict[str, _Function]:
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
                else (self.resolve(base) or "").startswith("torch.nn.") or _text(base).endswith("Module")
                for base in self.classes[name].bases
            )
        return self._is_module[name]

    def _entry_point(self, given: str | None) -> str:
        if given is not None:
            if given in self.classes:
                return given
            known = ", ".join(self.classes) or "no class"
            raise SourceError(_one_line(f"the source defines no class {given!r}: it has {known}"))
        if "Model" in self.classes:
            return "Model"
        modules = [name for name in self.classes if self.is_module(name)]
        # A factory function may also name the entry point, so the stricter rule comes first.
        for users in ({**self.functions, **self.classes}, self.classes):
            used = {
                node.id
                for name, user in users.items()
                for node in _in_text_order(user)
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
    return _text(bare).splitlines()


def _params(function: _Function | None) -> tuple[Param, ...]:
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
            None if arg.annotation is None else _text(arg.annotation),
            None if default is None else _text(default),
        )
        for arg, kind, default in rows
    )


class _Reach:
    """Walks from the entry point to every class and function defined here that it builds or calls."""

    def __init__(self, reader: _Reader) -> None:
        self.reader = reader
        self.layers: list[Layer] = []
        self.operations: dict[str, int] = {}
        self.has_loops = False
        self.has_data_dependent_ifs = False
        self._seen: set[tuple[str, int]] = set()
        self._todo: list[tuple[str, _Function, str | None]] = []

    def enter_class(self, name: str) -> None:
        methods = self.reader.methods(name)
        for phase, method in (("build", "__init__"), ("run", "forward")):
            if method in methods:
                self._add(phase, methods[method], name)

    def finish(self) -> None:
        for phase, function, owner in self._todo:  # grows during the loop
            if phase == "build":
                self._build(function, owner)
            else:
                self._run(function, owner)

    def _add(self, phase: str, function: _Function, owner: str | None) -> None:
        # Keyed by owner as well: an inherited method reaches other methods in another class.
        key = (f"{phase}:{owner}", id(function))
        if key not in self._seen:
            self._seen.add(key)
            self._todo.append((phase, function, owner))

    def _follow(self, node: ast.AST, phase: str, owner: str | None) -> bool:
        """Record what a name or attribute refers to, if that is defined here."""
        reader = self.reader
        if isinstance(node, ast.Name):
            if node.id in reader.functions:
                self._add(phase, reader.functions[node.id], None)
            elif node.id in reader.classes and node.id != owner:
                self.enter_class(node.id)
            else:
                return False
            return True
        if not isinstance(node, ast.Attribute):
            return False
        if isinstance(node.value, ast.Name) and node.value.id in reader.classes:
            target = node.value.id
            self._add_method(phase, target, "forward" if node.attr == "apply" else node.attr, target)
            return True
        if owner is None:
            return False
        if _is_self(node.value):
            return self._add_method(phase, owner, node.attr, owner)
        if _is_super(node.value):
            return any(
                self._add_method(phase, base.id, node.attr, owner)
                for base in reader.classes[owner].bases
                if isinstance(base, ast.Name)
            )
        return False

    def _add_method(self, phase: str, holder: str, method: str, owner: str) -> bool:
        function = self.reader.methods(holder).get(method)
        if function is not None:
            self._add(phase, function, owner)
        return function is not None

    def _build(self, function: _Function, owner: str | None) -> None:
        attributes: dict[int, str] = {}
        for node in _in_text_order(*function.body):
            if isinstance(node, ast.Assign | ast.AnnAssign):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                if isinstance(target, ast.Attribute) and _is_self(target.value) and node.value is not None:
                    attributes[id(node.value)] = target.attr
            elif isinstance(node, ast.Call):
                full = self.reader.resolve(node.func) or ""
                name = full.removeprefix("torch.nn.").removeprefix("modules.")
                if name != full and name.rpartition(".")[2][:1].isupper():
                    arguments = ", ".join(_text(a) for a in [*node.args, *node.keywords])
                    self.layers.append(
                        Layer(f"nn.{name}", arguments, attributes.get(id(node)), owner or function.name)
                    )
            else:
                self._follow(node, "build", owner)

    def _run(self, function: _Function, owner: str | None) -> None:
        values = {p.name for p in _params(function) if not _is_setting(p)}
        for node in _in_text_order(*function.body):
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
        full = self.reader.resolve(func)
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
        is_class = isinstance(holder, ast.Name) and holder.id in self.reader.classes
        return func.attr in _NO_OPERATIONS or is_class or _is_self(holder) or _is_super(holder)

    def _count(self, operation: str | None) -> None:
        if operation is not None:
            self.operations[operation] = self.operations.get(operation, 0) + 1


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _is_super(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def _is_setting(param: Param) -> bool:
    """Whether a parameter is a flag or a size rather than a tensor, by its annotation or its default."""
    if param.annotation is not None:
        return param.annotation in _STATIC_ANNOTATIONS
    return param.default is not None and param.default != "None"


def _assign(targets: Sequence[ast.expr], value: ast.expr | None, values: set[str]) -> None:
    names = {node.id for node in _in_text_order(*targets) if isinstance(node, ast.Name)}
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
