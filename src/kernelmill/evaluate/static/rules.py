"""Rules on what a candidate uses: outside modules used or changed, and Python internals.

These rules can be hard, so each requires certainty: the name refers to the module on every branch, the code
can run, and the use is never honest. Anything less is soft.
"""

from __future__ import annotations

import ast

from kernelmill.evaluate.static.language import StaticRules
from kernelmill.evaluate.static.names import UNKNOWN, Tree, Unit
from kernelmill.evaluate.static.paths import known_module, rule_for, rule_for_patch
from kernelmill.evaluate.static.syntax import text_of, words
from kernelmill.evaluate.verdict import Flag, Severity

# Attributes that lead out of a function, a frame or a class.
_INSIDES: dict[str, tuple[str, Severity]] = {
    **dict.fromkeys(["f_back", "f_locals", "f_globals", "f_builtins", "tb_frame"], ("A12.frames", "hard")),
    "findCaller": ("A12.frames", "hard"),
    **dict.fromkeys(["gi_frame", "cr_frame", "ag_frame"], ("A12.frames", "hard")),
    **dict.fromkeys(["__globals__", "__builtins__"], ("A12.frames", "hard")),
    "__code__": ("D6.code_objects", "hard"),
    **dict.fromkeys(["__closure__", "cell_contents", "__subclasses__", "__bases__"], ("A12.frames", "soft")),
    "_version": ("B2.version", "soft"),
}
_HARMLESS_OF_CODE = words("co_argcount co_varnames co_name co_filename co_firstlineno co_flags")
_FILE_WRITERS = words("write_text write_bytes")
_DICT_WRITERS = words("update setdefault pop popitem clear __setitem__ __delitem__ __ior__")


class Findings:
    """Collects flags: the first of each kind, with its line and how often it occurred."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._flags: dict[tuple[str, Severity], Flag] = {}

    def add(self, code: str, severity: Severity, node: ast.AST | None, what: str = "") -> None:
        if (code, severity) in self._flags:
            evidence = self._flags[code, severity].evidence
            evidence["times"] = evidence.get("times", 1) + 1
            return
        line = getattr(node, "lineno", 0)
        evidence = {
            "line": line,
            "code": self._lines[line - 1].strip()[:120] if 0 < line <= len(self._lines) else "",
        }
        if what:
            evidence["what"] = what[:120]
        self._flags[code, severity] = Flag(code, severity, evidence)

    def flags(self) -> list[Flag]:
        """Hard flags first, then by line. A soft flag is dropped if there is a hard one of the same code."""
        order = {"hard": 0, "soft": 1, "info": 2}
        kept = [
            f
            for (code, severity), f in self._flags.items()
            if severity == "hard" or (code, "hard") not in self._flags
        ]
        return sorted(kept, key=lambda f: (order[f.severity], f.evidence["line"], f.code))


class Rules:
    def __init__(self, tree: Tree, running: set[Unit], found: Findings, language: StaticRules) -> None:
        self._tree = tree
        self._language = language
        self._running = running
        self._found = found
        self._own_attributes = {
            n.attr
            for n in tree.nodes
            if isinstance(n, ast.Attribute)
            and not isinstance(n.ctx, ast.Load)
            and isinstance(n.value, ast.Name)
        }
        self._alive = {unit.node for unit in running}

    def apply(self) -> None:
        for node in self._tree.nodes:
            if self._tree.unit[node] not in self._running:
                continue
            match node:
                case ast.Import(names=names):
                    for alias in names:
                        self._imported(alias.name, node)
                case ast.ImportFrom(module=module, level=level, names=names):
                    self._imported("." * level + (module or ""), node, star=names[0].name == "*")
                case ast.Attribute(ctx=ast.Load()):
                    self._inside(node.attr, node)
                    self._used(node)
                case ast.Attribute():
                    self._inside(node.attr, node)
                    self._set(node.value, node.attr, node)
                case ast.Subscript(ctx=ast.Store() | ast.Del()):
                    self._set_item(node.value, text_of(node.slice), node)
                case ast.Name(ctx=ast.Load()):
                    self._used(node)
                case ast.Call():
                    self._used(node)
                    self._called(node)
                    for given in node.args:  # attrgetter("run.__globals__")
                        for name in (text_of(given) or "").split("."):
                            if name in _INSIDES:
                                self._inside(name, node)

    def _imported(self, module: str, node: ast.AST, star: bool = False) -> None:
        rule = rule_for(module, self._language)
        if rule is not None and rule[1] == "hard":
            # An unused import proves nothing. A use is flagged where it occurs.
            certain = star or module.split(".")[0] in ("kernelmill", "__main__")
            self._found.add(rule[0], "hard" if certain else "soft", node, module)
        elif not known_module(module, self._language):
            self._found.add("A10.foreign_import", "soft", node, module)
        elif rule is not None and rule[1] == "info":
            self._found.add(*rule, node, module)

    def _used(self, node: ast.expr) -> None:
        parent = self._tree.parent[node]
        if isinstance(parent, ast.Attribute) and parent.value is node:
            return  # the longer path is more specific
        paths = self._tree.paths(node)
        for path in paths - {UNKNOWN}:
            rule = rule_for(path, self._language)
            if rule is None or self._is_harmless(path, node, parent):
                continue
            code, severity = rule
            if severity == "hard" and (UNKNOWN in paths or self._decorates_dead_code(node)):
                severity = "soft"
            self._found.add(code, severity, node, path)

    def _decorates_dead_code(self, node: ast.AST) -> bool:
        """Whether it decorates an unused function: `@torch.compile` then compiles nothing."""
        parent = self._tree.parent[node]
        if isinstance(parent, ast.Call) and parent.func is node:
            node, parent = parent, self._tree.parent[parent]
        return (
            isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef)
            and node in parent.decorator_list
            and parent not in self._alive
        )

    def _is_harmless(self, path: str, node: ast.expr, parent: ast.AST) -> bool:
        if path == "sys.modules":
            own = (
                isinstance(parent, ast.Subscript)
                and isinstance(parent.slice, ast.Name)
                and parent.slice.id == "__name__"
            )
            asked = isinstance(parent, ast.Compare) and node in parent.comparators
            return own or asked
        if path == "sys.modules.get":
            # Whether a package was imported; a harness's own name is none.
            name = text_of(parent.args[0]) if isinstance(parent, ast.Call) and parent.args else None
            return name is not None and name.split(".")[0] not in ("kernelmill", "__main__")
        if path == "builtins.__import__":
            # With a constant name this is an ordinary import, and is judged as one.
            return (
                isinstance(parent, ast.Call)
                and parent.func is node
                and bool(parent.args)
                and text_of(parent.args[0]) is not None
            )
        return path == "builtins.id" and not isinstance(parent, ast.Call)

    def _inside(self, name: str, node: ast.AST) -> None:
        rule = _INSIDES.get(name)
        if rule is None or (not name.startswith("_") and name in self._own_attributes):
            return
        code, severity = rule
        parent = self._tree.parent[node]
        if name == "__code__" and isinstance(parent, ast.Attribute) and parent.attr in _HARMLESS_OF_CODE:
            severity = "info"
        elif name in ("__code__", "__globals__") and self._is_of_own_function(node):
            severity = "soft"
        self._found.add(code, severity, node, name)

    def _is_of_own_function(self, node: ast.AST) -> bool:
        match node:
            case ast.Attribute(value=ast.Name(id=name), ctx=ast.Load()):
                return name in self._tree.module_scope.functions
        return False

    # Changing modules

    def _set(self, base: ast.expr, attr: str | None, node: ast.AST, value: ast.expr | None = None) -> None:
        paths = self._tree.paths(base)
        for path in paths - {UNKNOWN}:
            target = f"{path}.{attr or '?'}"
            rule = rule_for_patch(target, self._language)
            if rule is None:
                continue
            code, severity = rule
            certain = not (
                UNKNOWN in paths or self._is_addition(node, path, attr) or self._is_shim(target, node, value)
            )
            if severity == "hard" and not certain:
                severity = "soft"
            self._found.add(code, severity, node, target)

    def _is_shim(self, target: str, node: ast.AST, value: ast.expr | None) -> bool:
        """Whether this aliases a kernel function under another version's name: `tl.tanh = libdevice.tanh`."""
        parent = self._tree.parent[node]
        if value is None and isinstance(parent, ast.Assign):
            value = parent.value
        paths = self._tree.paths(value) if value is not None else frozenset()
        own = self._language.functions
        return (
            bool(own)
            and target.startswith(own)
            and bool(paths)
            and all(path.startswith(own) for path in paths)
        )

    def _is_addition(self, node: ast.AST, path: str, attr: str | None) -> bool:
        """Whether it is set only `if not hasattr(module, name)`, which replaces nothing."""
        while (
            not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and node in self._tree.parent
        ):
            child, node = node, self._tree.parent[node]
            if (
                isinstance(node, ast.If)
                and child in node.body
                and self._asks_whether_absent(node.test, path, attr)
            ):
                return True
        return False

    def _asks_whether_absent(self, test: ast.expr, path: str, attr: str | None) -> bool:
        match test:
            case ast.UnaryOp(op=ast.Not(), operand=ast.Call(func=function, args=[base, name])):
                asks = "builtins.hasattr"
            case ast.Compare(
                left=name, ops=[ast.NotIn()], comparators=[ast.Call(func=function, args=[base])]
            ):
                asks = "builtins.dir"
            case _:
                return False
        return (
            self._tree.paths(function) == {asks}
            and self._tree.paths(base) == {path}
            and text_of(name) == attr
        )

    def _set_item(self, base: ast.expr, name: str | None, node: ast.AST) -> None:
        paths = self._tree.paths(base)
        for path in paths - {UNKNOWN}:
            if path.endswith(".__dict__"):
                rule = rule_for_patch(f"{path.removesuffix('.__dict__')}.{name or '?'}", self._language)
                if rule is not None:
                    self._found.add(rule[0], "soft" if UNKNOWN in paths else rule[1], node, path)
            elif path == "builtins.__builtins__":
                self._found.add("E7.patches_module", "hard", node, path)

    def _opened(self, node: ast.Call) -> None:
        """A file that is opened for writing, or that belongs to a process."""
        given = dict(enumerate(node.args)) | {keyword.arg: keyword.value for keyword in node.keywords}
        path, mode = (
            text_of(value) if value is not None else None
            for value in (given.get(0, given.get("file")), given.get(1, given.get("mode")))
        )
        if (path or "").startswith(("/proc/self/", "/proc/thread-self/")):
            self._found.add("D7.reads_processes", "hard", node, path or "")
        elif set(mode or "") & set("wax+"):
            self._found.add("B5.writes_files", "hard", node, path or "")

    def _called(self, node: ast.Call) -> None:
        args = node.args
        if isinstance(node.func, ast.Attribute) and node.func.attr in _FILE_WRITERS:
            self._found.add("B5.writes_files", "hard", node, node.func.attr)
        for path in self._tree.paths(node.func):
            match path.rpartition("."):
                case "builtins", _, "open":
                    self._opened(node)
                case "builtins", _, "setattr" | "delattr" if len(args) >= 2:
                    self._set(args[0], text_of(args[1]), node, args[2] if len(args) > 2 else None)
                case _, _, "__setattr__" | "__delattr__" if isinstance(node.func, ast.Attribute):
                    # torch.__setattr__("equal", f), or type.__setattr__(torch, "equal", f)
                    bound = len(args) == (2 if node.func.attr == "__setattr__" else 1)
                    base, name = (
                        (node.func.value, args[0])
                        if bound
                        else (args[0], args[1])
                        if len(args) > 1
                        else (None, None)
                    )
                    if base is not None:
                        self._set(base, text_of(name), node)
                case "builtins", _, "getattr" if len(args) >= 2:
                    attr = text_of(args[1])
                    if attr is not None:
                        self._inside(attr, node)
                    if not isinstance(
                        args[1], ast.Constant | ast.Name | ast.Attribute | ast.JoinedStr
                    ) and any(p.split(".")[0] == "torch" for p in self._tree.paths(args[0])):
                        self._found.add("A7.obscured_op", "soft", node, attr or "")
                case "operator", _, "setitem" | "delitem" if len(args) >= 2:
                    self._set_item(args[0], text_of(args[1]), node)
                case "builtins.dict", _, "update" | "__setitem__" | "pop" | "clear" if args:
                    self._set_item(args[0], None, node)
                case _, _, method if method in _DICT_WRITERS and isinstance(node.func, ast.Attribute):
                    self._set_item(node.func.value, None, node)
