"""`ModelNew` around a new `forward`: the original's constructor and whatever it needs from the original file.

Parameters keep their names, so the original's state_dict fits. The original's classes stay as parameter
holders: their constructors, and the methods that constructors call. Methods that compute are dropped.
"""

from __future__ import annotations

import ast
import builtins

from kernelmill.base.python_text import parse_module

_TEMPLATE = """{imports}


{functions}


{definitions}class {name}({bases}):
{doc}{attributes}{init}    def forward({signature}):
{body}
"""


def forward_of(code: str, class_name: str) -> ast.FunctionDef:
    """Return the original's `forward`, its own or an inherited one."""
    module, waiting = parse_module(code), [class_name]
    classes = {node.name: node for node in module.body if isinstance(node, ast.ClassDef)}
    while waiting:
        owner = classes.get(waiting.pop(0))
        if owner is not None:
            if (found := _method(owner, "forward")) is not None:
                return found
            waiting += [base.id for base in owner.bases if isinstance(base, ast.Name)]
    raise LookupError(f"{class_name} has no forward that stands in the file")


def assemble(
    code: str, class_name: str, new_name: str, functions: list[str], body: list[str], imports: list[str]
) -> str:
    """Return the whole file."""
    module = parse_module(code)
    original = _class(module, class_name)
    forward = forward_of(code, class_name)
    kept = _holder(original, _built_with(module))
    kept.name = new_name
    for node in ast.walk(kept):
        if isinstance(node, ast.Name) and node.id == class_name:
            node.id = new_name
    wanted = _names(kept) | _names(forward.args)
    definitions, own_imports = _needed(module, wanted, class_name)
    lines = sorted({*own_imports, *imports}, key=lambda line: (line.startswith("from"), line.split()))
    methods = [node for node in kept.body if isinstance(node, ast.FunctionDef)]
    others = [node for node in kept.body if not isinstance(node, ast.FunctionDef)]
    doc = ast.get_docstring(original)
    others = [
        node for node in others if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    ]
    indented = "".join(_indented(ast.unparse(node)) + "\n\n" for node in methods)
    return _TEMPLATE.format(
        imports="\n".join(lines),
        functions="\n\n\n".join(functions),
        definitions="".join(f"{text}\n\n\n" for text in definitions),
        name=new_name,
        bases=", ".join(ast.unparse(base) for base in original.bases),
        doc=_indented(f'"""{doc}"""') + "\n\n" if doc else "",
        attributes="".join(_indented(ast.unparse(node)) + "\n" for node in others),
        init=indented,
        signature=ast.unparse(forward.args),
        body="\n".join(_indented(line, 2) for line in body),
    )


def _class(module: ast.Module, name: str) -> ast.ClassDef:
    return next(node for node in module.body if isinstance(node, ast.ClassDef) and node.name == name)


def _method(owner: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    return next(
        (node for node in owner.body if isinstance(node, ast.FunctionDef) and node.name == name), None
    )


def _holder(owner: ast.ClassDef, needed: set[str]) -> ast.ClassDef:
    """Return the class without the methods that no constructor calls."""
    body = [node for node in owner.body if not isinstance(node, ast.FunctionDef) or node.name in needed]
    return ast.ClassDef(
        name=owner.name,
        bases=owner.bases,
        keywords=owner.keywords,
        body=body or [ast.Pass()],
        decorator_list=owner.decorator_list,
    )


def _built_with(module: ast.Module) -> set[str]:
    """Return the names of the methods that constructors call, in any class of the file."""
    methods = [
        node
        for owner in module.body
        if isinstance(owner, ast.ClassDef)
        for node in owner.body
        if isinstance(node, ast.FunctionDef)
    ]
    needed, waiting = set[str](), ["__init__"]
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += [
                node.attr
                for method in methods
                if method.name == name
                for node in ast.walk(method)
                if isinstance(node, ast.Attribute)
            ]
    return needed - {"forward"}


def _names(node: ast.AST) -> set[str]:
    """Return the free names of a node, without a function's own arguments and variables."""
    if isinstance(node, ast.FunctionDef | ast.Lambda):
        inner = {
            one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
        }
        inner |= {one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg)}
        parts = node.body if isinstance(node, ast.FunctionDef) else [node.body]
        around = [node.args, *(node.decorator_list if isinstance(node, ast.FunctionDef) else [])]
        return set().union(*(_names(part) for part in parts)) - inner | set().union(*map(_names, around))
    if isinstance(node, ast.Name):
        return {node.id} - set(dir(builtins))
    return set().union(*(_names(child) for child in ast.iter_child_nodes(node)))


def _needed(module: ast.Module, wanted: set[str], without: str) -> tuple[list[str], list[str]]:
    """Return the definitions and imports of the file that the names need, in file order."""
    definitions: dict[int, str] = {}
    imports: dict[int, str] = {}
    waiting, seen = set(wanted), {without}
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for place, node in enumerate(module.body):
            match node:
                case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                    if any((alias.asname or alias.name.partition(".")[0]) == name for alias in aliases):
                        imports[place] = ast.unparse(node)
                case ast.ClassDef(name=found) if found == name:
                    kept = _holder(node, _built_with(module))
                    definitions[place] = ast.unparse(ast.fix_missing_locations(kept))
                    waiting |= _names(kept)
                case ast.FunctionDef(name=found) if found == name:
                    definitions[place] = ast.unparse(node)
                    waiting |= _names(node)
                case ast.AnnAssign(target=ast.Name(id=found), value=ast.expr()) if found == name:
                    definitions[place] = ast.unparse(node)
                    waiting |= _names(node)
                case ast.Try() | ast.If() if name in _bound(node):
                    definitions[place] = ast.unparse(node)
                    waiting |= _names(node)
                case ast.Assign(targets=targets):
                    if any(isinstance(t, ast.Name) and t.id == name for x in targets for t in ast.walk(x)):
                        definitions[place] = ast.unparse(node)
                        waiting |= _names(node.value)
    return [definitions[place] for place in sorted(definitions)], [
        imports[place] for place in sorted(imports)
    ]


def _bound(node: ast.AST) -> set[str]:
    """Return the names that a statement binds."""
    stored = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    aliases = [n for n in ast.walk(node) if isinstance(n, ast.alias)]
    return stored | {alias.asname or alias.name.partition(".")[0] for alias in aliases}


def _indented(text: str, depth: int = 1) -> str:
    return "\n".join("    " * depth + line if line else line for line in text.split("\n"))
